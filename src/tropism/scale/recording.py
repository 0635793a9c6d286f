"""Recordings made on an executor: workers run the episodes, this process writes them in order."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tropism.core.environment import Environment
from tropism.core.episode import Timestep
from tropism.core.rollout.policy import Policy
from tropism.core.rollout.stepped import SteppedPolicy
from tropism.core.session.session import Session
from tropism.record import Manifest, Writer
from tropism.scale.executor import use_executor

SHARD = 8  # episodes


class EpisodeLog(NamedTuple):
    """The part of an episode that a worker returns."""

    seed: int
    episode_id: str | None
    first: Timestep
    steps: list[tuple[Any, Timestep]]  # actions, and the timesteps after them
    total_reward: float


class RecordingTotals(NamedTuple):
    """The size of a recording."""

    episodes: int
    steps: int
    mean_return: float


@dataclass(frozen=True)
class RecordingJob:
    """Runs a range of episodes; episode i has the seed `seed + i`."""

    env: Environment
    params: Any
    policy: Policy
    seed: int
    max_steps: int

    def __call__(self, shard: range) -> list[EpisodeLog]:
        policy = SteppedPolicy(copy.deepcopy(self.policy), self.env.pure)
        with Session(self.env, self.params) as session:
            return [self._run(session, policy, self.seed + number) for number in shard]

    def _run(self, session: Session, policy: SteppedPolicy, seed: int) -> EpisodeLog:
        policy.reset(seed)
        first = timestep = session.reset(seed=seed)
        steps: list[tuple[Any, Timestep]] = []
        while len(steps) < self.max_steps and not (timestep.terminated or timestep.truncated):
            action = policy.act(timestep.obs)
            timestep = session.step(action)
            steps.append((session.action_space.coerce(action), timestep))
        return EpisodeLog(seed, session.episode_id, first, steps, session.total_reward)


def record(
    env: Environment,
    params: Any,
    policy: Policy,
    folder: str | Path,
    seed: int,
    num_episodes: int,
    max_steps: int = 1000,
    on_progress: Callable[[int], None] = lambda _done: None,
    *,
    on: Any = None,
) -> RecordingTotals:
    """Record episodes into a folder of Parquet files; the same episodes, in the same order, on every executor.

    `on` is as in `tropism.scale.evaluate`. After Ctrl-C the folder has the first episodes, as far as they are complete.
    """
    job = RecordingJob(env, params, policy, seed, max_steps)
    shards = [range(start, min(start + SHARD, num_episodes)) for start in range(0, num_episodes, SHARD)]
    waiting: dict[int, list[EpisodeLog]] = {}
    returns, steps, next_shard = list[float](), 0, 0
    with Session(env, params) as session:
        manifest = Manifest.of(session)
    with Writer(folder, manifest) as writer, use_executor(on) as executor:
        for number, logs in executor.run(job, shards):
            waiting[number] = logs
            while next_shard in waiting:
                for log in waiting.pop(next_shard):
                    _write(writer, log)
                    returns.append(log.total_reward)
                    steps += len(log.steps)
                next_shard += 1
            on_progress(len(returns))
    return RecordingTotals(len(returns), steps, sum(returns) / len(returns))


def _write(writer: Writer, log: EpisodeLog) -> None:
    episode = writer.begin(log.seed, None, log.first, log.episode_id)
    for number, (action, timestep) in enumerate(log.steps, 1):
        writer.step(episode, number, action, timestep)
