"""Laws of repetition: same-seed, global-state, episodes, instances."""

import copy
from collections.abc import Iterator
from typing import Any

from tropism.check.compare import host
from tropism.check.context import SHORT, Moment, Subject, calls_of, compare_runs, play
from tropism.check.finding import Finding
from tropism.core.session.session import EnvironmentState, Session


def check_same_seed(subject: Subject) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        actions = _unfinished(subject, seed, actions)
        once = list(subject.run(subject.fast, seed, actions))
        return compare_runs("step", subject.run(subject.fast, seed, actions), once)

    # What does not compile is called plainly, and then the law that follows is the one to judge it.
    return None if subject.traced and subject.fast is subject.plain else subject.smallest(fails)


def check_global_state(subject: Subject) -> Finding | None:
    """Uncompiled calls see what a compilation would have frozen: counters, clocks, global generators."""

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        others = _unfinished(subject, seed + 1, subject.actions(seed + 1, len(actions)))
        actions = _unfinished(subject, seed, actions)
        before = hash(subject.env)
        once = subject.reference(seed, actions)
        again = _interleaved(subject.run(subject.plain, seed, actions), subject.run(subject.plain, seed + 1, others))
        if hash(subject.env) != before:
            return Finding("step", "the environment itself changed while it was stepped: its hash is another")
        return compare_runs("step", again, once)

    return subject.smallest(fails)


def _unfinished(subject: Subject, seed: int, actions: list[Any]) -> list[Any]:
    """The actions without the one that ends the episode: what an end leaves behind is the law of episodes."""
    moments = list(subject.run(subject.fast, seed, actions))
    ended = len(moments) > 1 and bool(moments[-1].done)
    return actions[: len(moments) - 2] if ended else actions


def _interleaved(run: Iterator[Moment], other: Iterator[Moment]) -> list[Moment]:
    """The moments of one run, with another going on between its steps."""
    moments: list[Moment] = []
    for moment in run:
        moments.append(moment)
        next(other, None)
    for _ in other:
        pass
    return moments


def check_episodes(subject: Subject) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        session = subject.session()
        once = [host(session.reset(seed=seed)), *play(session, actions[:SHORT])]
        steps = len(once) - 1 + sum(1 for _ in play(session, actions[SHORT:]))
        ended = session.lifecycle is not EnvironmentState.READY
        again = [host(session.reset(seed=seed)), *play(session, actions[:SHORT])]
        session.close()
        fresh = _lived(subject, seed, actions[:SHORT])
        found = compare_runs("step", again, once) or compare_runs("step", fresh, once)
        after = f"an episode of {steps} steps{'' if ended else ' cut short'}"
        return found and found._replace(message=f"after {after}, {found.message}")

    return subject.smallest(fails, subject.num_steps, "session")


def check_instances(subject: Subject) -> Finding | None:
    twin = calls_of(copy.deepcopy(subject.env), subject.params)

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        found = compare_runs("step", subject.run(twin, seed, actions), subject.reference(seed, actions))
        if found is not None:
            return found._replace(message=f"an equal environment behaves differently: {found.message}")
        alone = _lived(subject, seed, actions)
        session, other = subject.session(), subject.session()
        mine = [host(session.reset(seed=seed))]
        other.reset(seed=seed + 1)
        others = play(other, subject.actions(seed + 1, len(actions)))
        for timestep in play(session, actions):
            mine.append(timestep)
            next(others, None)
        _close(session, other)
        found = compare_runs("step", mine, alone)
        return found and found._replace(message=f"beside a second session, {found.message}")

    return subject.smallest(fails, place="session")


def _lived(subject: Subject, seed: int, actions: list[Any]) -> list[Any]:
    """The timesteps of a session of its own."""
    with subject.session() as session:
        return [host(session.reset(seed=seed)), *play(session, actions)]


def _close(*sessions: Session) -> None:
    for session in sessions:
        session.close()
