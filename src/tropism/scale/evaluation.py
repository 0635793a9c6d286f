"""Evaluation on an executor: `tropism.train.evaluate` with one more argument."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any

from tropism.core.environment import Environment
from tropism.core.rollout.policy import Policy
from tropism.scale.executor import use_executor
from tropism.train.evaluation import Evaluation, compiled_shards, is_compiled, join_evaluations
from tropism.train.evaluation import evaluate as evaluate_here

HOST_SHARD = 8  # episodes that are not compiled


class EvaluationInterruptedError(KeyboardInterrupt):
    """Ctrl-C stopped an evaluation; `partial` has the first episodes, as far as they are complete, or is None."""

    def __init__(self, partial: Evaluation | None):
        super().__init__("the evaluation was interrupted")
        self.partial = partial


@dataclass(frozen=True)
class EvaluationJob:
    """Evaluates a range of episodes; episode i has the seed `seed + i`."""

    name: str
    env: Environment
    params: Any
    policy: Policy
    seed: int
    max_steps: int  # of an episode that is not compiled

    def shards(self, num_episodes: int) -> list[range]:
        """The parts of an evaluation, which do not depend on the executor."""
        if is_compiled(self.env, self.policy):
            return compiled_shards(self.env, num_episodes)
        starts = range(0, num_episodes, HOST_SHARD)
        return [range(start, min(start + HOST_SHARD, num_episodes)) for start in starts]

    def __call__(self, shard: range) -> Evaluation:
        policy, seed = self.policy, self.seed + shard.start
        if not is_compiled(self.env, policy):
            policy = copy.deepcopy(policy)  # it may have a state, and other threads run it, too
        return evaluate_here(self.name, self.env, self.params, policy, seed, len(shard), max_steps=self.max_steps)


def evaluate(
    name: str,
    env: Environment,
    params: Any,
    policy: Policy,
    seed: int,
    num_episodes: int,
    on_progress: Callable[[int], None] = lambda _done: None,
    *,
    on: Any = None,
    max_steps: int = 1000,
) -> Evaluation:
    """Run a policy in any environment; the same result on every executor, bit for bit on machines of one kind.

    `on` is "threads", "processes", "ray", "ray://HOST:PORT", an Executor, or None for this thread. `on_progress` is
    called with the number of complete episodes. Ctrl-C raises EvaluationInterruptedError.
    """
    job = EvaluationJob(name, env, params, policy, seed, max_steps)
    shards = job.shards(num_episodes)
    done: dict[int, Evaluation] = {}
    try:
        with use_executor(on) as executor:
            for number, part in executor.run(job, shards):
                done[number] = part
                on_progress(min(num_episodes, sum(len(shards[each]) for each in done)))
    except KeyboardInterrupt:
        raise EvaluationInterruptedError(_first_episodes(done, num_episodes)) from None
    return join_evaluations([done[number] for number in range(len(shards))], num_episodes)


def _first_episodes(done: dict[int, Evaluation], num_episodes: int) -> Evaluation | None:
    """The episodes before the first that is missing, so that episode i still has the seed `seed + i`."""
    parts = [done[number] for number in takewhile(done.__contains__, count())]
    complete = min(num_episodes, sum(len(part.returns) for part in parts))
    return join_evaluations(parts, complete) if parts else None
