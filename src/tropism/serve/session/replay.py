"""Replays the entries of served sessions, to restore, fork and show them."""

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, runtime_checkable

from tropism.core.native.choice import EngineName
from tropism.core.session.replay import TIMESTEPS, ReplayEntry, replay
from tropism.core.session.session import Session
from tropism.errors import DivergedError, ServerError, StateError, ValidationError
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.protocol import UNKNOWN_DIGEST, Entry, RecoveryPoint

RESET_ARGUMENTS = ("seed", "options", "episode_id")

Compare = Callable[[Session, Entry], object]


@runtime_checkable
class Source(Protocol):
    """The source of an episode: a live session or a recording."""

    environment: ServedEnvironment

    def entries(self) -> list[Entry]:
        """The entries so far, beginning with the reset; call in a thread, because it may read files."""
        ...

    def episode_number(self) -> int:
        """The number of the current episode; `entries`, called afterwards, may already be of a later one."""
        ...

    def compare(self, session: Session, entry: Entry, /) -> None:
        """Raise if a session replayed up to this entry differs from the original."""
        ...

    def status(self) -> tuple[str, int]:
        """Lifecycle, and steps taken."""
        ...


def replay_entries(
    environment: ServedEnvironment, session: Session, entries: Iterable[Entry], compare: Compare
) -> Iterator[Entry]:
    """Replay the entries in the session, and yield each one afterwards."""
    for entry in replay(session, (_replay_entry(environment, entry) for entry in entries), compare):
        yield entry.expected


def _replay_entry(environment: ServedEnvironment, entry: Entry) -> ReplayEntry:
    if not environment.replayable:
        message = f"an episode of {environment.id} cannot be replayed, so its history cannot be shown"
        raise StateError("replayable", False, "a replayable environment", message)
    if entry.kind == "reset":
        return ReplayEntry("reset", {name: entry.payload[name] for name in RESET_ARGUMENTS}, entry)
    if entry.kind == "reseed":
        return ReplayEntry("reseed", entry.payload["seed"], entry)
    if entry.kind == "upload":
        return ReplayEntry("upload", (entry.payload["path"], b64decode(entry.payload["data"])), entry)
    return ReplayEntry("step", environment.read_action(entry.payload), entry, entry.outcome)


def replay_to_end(environment: ServedEnvironment, session: Session, entries: Iterable[Entry], compare: Compare) -> None:
    """Replay all entries in the session, which is closed if that fails."""
    try:
        for _ in replay_entries(environment, session, entries, compare):
            pass
    except BaseException:
        session.close()
        raise


def compare_reward(session: Session, entry: Entry) -> None:
    """Raise if the reward of a replayed step differs from the stored one."""
    reward = session.timestep.reward
    if entry.kind == "step" and entry.reward is not None and reward != entry.reward and reward == reward:
        message = f"the replay has the reward {reward} at step {session.step_count}, not {entry.reward}"
        raise DivergedError("replay", reward, f"the reward {entry.reward}", message)


def entries_to_step(entries: list[Entry], step: int) -> list[Entry]:
    """The entries up to this step."""
    lengths = [index + 1 for index, entry in enumerate(entries) if entry.kind in TIMESTEPS]
    if not 0 <= step < len(lengths):
        raise ValidationError("step", step, f"a step of this episode: 0 to {len(lengths) - 1}")
    return entries[: lengths[step]]


def periodic_snapshot(session: Session, every: int) -> bytes | None:
    """A snapshot every so many steps, to keep replays short; None otherwise, and always if `every` is 0.

    Host environments get none: their snapshots are replays themselves.
    """
    return session.snapshot() if every and session.step_count % every == 0 else None


def restore_session(
    environment: ServedEnvironment, point: RecoveryPoint, on_reply: Callable[[Entry, Session], None]
) -> Session:
    """The session, bit for bit; a `DivergedError` if a replayed reply differs from the original one.

    `on_reply` is called after each replayed entry that has a request id, with the session. A replay that differs on
    another engine is repeated on XLA, where the session then continues.
    """
    try:
        return _restore_on(environment.engine, environment, point, on_reply)
    except DivergedError:
        if not environment.env.pure or environment.engine == "xla":
            raise
        return _restore_on("xla", environment, point, on_reply)


def _restore_on(
    engine: EngineName,
    environment: ServedEnvironment,
    point: RecoveryPoint,
    on_reply: Callable[[Entry, Session], None],
) -> Session:
    entries = [entry for entry in point.after if not entry.is_note]
    if entries and not environment.replayable:
        message = f"an episode of {environment.id} cannot be replayed, and ended with the server; a reset opens another"
        raise ServerError("SESSION_ERROR", message)
    if point.snapshot is None:
        session = environment.new_session() if engine == environment.engine else environment.new_session_on(engine)
    else:
        session = Session.restore(point.snapshot, environment.env, environment.params, engine=engine)

    def compare(session: Session, entry: Entry) -> None:
        check_reply(environment, session, entry)
        compare_reward(session, entry)
        if entry.request is not None:
            on_reply(entry, session)

    try:
        if point.snapshot is not None:
            compare(session, next(entry for entry in reversed(point.before) if entry.kind in TIMESTEPS))
    except BaseException:
        session.close()
        raise
    replay_to_end(environment, session, entries, compare)
    return session


def check_reply(environment: ServedEnvironment, session: Session, entry: Entry) -> None:
    """Raise if the reply to a replayed entry differs from the original one."""
    if entry.reply_digest not in (UNKNOWN_DIGEST, environment.form.digest(session.timestep)):
        where = f"step {session.step_count}" if entry.kind == "step" else "the reset"
        message = f"in the replay of this episode of {environment.id}, the reply to {where} differs from the original"
        raise DivergedError("replay", entry.kind, "the original reply", message)
