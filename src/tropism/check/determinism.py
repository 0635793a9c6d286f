"""Laws of determinism: same-seed, global-state, episodes, instances."""

import copy
from collections.abc import Iterator
from typing import Any

from tropism.check.compare import to_host
from tropism.check.context import SHORT, CheckContext, StepRecord, calls_of, compare_runs, play
from tropism.check.finding import Finding
from tropism.core.session.session import EnvironmentState, Session


def check_same_seed(context: CheckContext) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        actions = _without_last_step(context, seed, actions)
        first = list(context.run(context.fast, seed, actions))
        return compare_runs("step", context.run(context.fast, seed, actions), first)

    # Where compilation fails, only plain calls are left, which the next law covers.
    return None if context.pure and context.fast is context.plain else context.find_smallest(fails)


def check_global_state(context: CheckContext) -> Finding | None:
    """Plain calls read global state that compilation would freeze: counters, clocks, global generators."""

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        others = _without_last_step(context, seed + 1, context.actions(seed + 1, len(actions)))
        actions = _without_last_step(context, seed, actions)
        before = hash(context.env)
        first = context.reference(seed, actions)
        again = _interleave(context.run(context.plain, seed, actions), context.run(context.plain, seed + 1, others))
        if hash(context.env) != before:
            return Finding("step", "the environment object changed during the steps: its hash differs")
        return compare_runs("step", again, first)

    return context.find_smallest(fails)


def _without_last_step(context: CheckContext, seed: int, actions: list[Any]) -> list[Any]:
    """The actions without the one that ends the episode: the law `episodes` covers the effects of an end."""
    records = list(context.run(context.fast, seed, actions))
    ended = len(records) > 1 and bool(records[-1].done)
    return actions[: len(records) - 2] if ended else actions


def _interleave(run: Iterator[StepRecord], other: Iterator[StepRecord]) -> list[StepRecord]:
    """The records of one run, with steps of another in between."""
    records: list[StepRecord] = []
    for record in run:
        records.append(record)
        next(other, None)
    for _ in other:
        pass
    return records


def check_episodes(context: CheckContext) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        session = context.session()
        first = [to_host(session.reset(seed=seed)), *play(session, actions[:SHORT])]
        steps = len(first) - 1 + sum(1 for _ in play(session, actions[SHORT:]))
        ended = session.lifecycle is not EnvironmentState.READY
        again = [to_host(session.reset(seed=seed)), *play(session, actions[:SHORT])]
        session.close()
        separate = _run_session(context, seed, actions[:SHORT])
        found = compare_runs("step", again, first) or compare_runs("step", separate, first)
        after = f"an episode of {steps} steps{'' if ended else ' cut short'}"
        return found and found._replace(message=f"after {after}, {found.message}")

    return context.find_smallest(fails, context.num_steps, "session")


def check_instances(context: CheckContext) -> Finding | None:
    twin = calls_of(copy.deepcopy(context.env), context.params)

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        found = compare_runs("step", context.run(twin, seed, actions), context.reference(seed, actions))
        if found is not None:
            return found._replace(message=f"an equal environment behaves differently: {found.message}")
        alone = _run_session(context, seed, actions)
        session, other = context.session(), context.session()
        mine = [to_host(session.reset(seed=seed))]
        other.reset(seed=seed + 1)
        others = play(other, context.actions(seed + 1, len(actions)))
        for timestep in play(session, actions):
            mine.append(timestep)
            next(others, None)
        _close(session, other)
        found = compare_runs("step", mine, alone)
        return found and found._replace(message=f"interleaved with a second session, {found.message}")

    return context.find_smallest(fails, place="session")


def _run_session(context: CheckContext, seed: int, actions: list[Any]) -> list[Any]:
    """The timesteps of a new session."""
    with context.session() as session:
        return [to_host(session.reset(seed=seed)), *play(session, actions)]


def _close(*sessions: Session) -> None:
    for session in sessions:
        session.close()
