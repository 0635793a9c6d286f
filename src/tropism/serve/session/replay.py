"""Restores sessions from a snapshot and the entries written after it."""

from collections.abc import Callable
from typing import Any

from tropism.core.session.session import Session
from tropism.errors import DivergedError, ServerError
from tropism.serve.inspect.timeline import replay_entry
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.protocol import UNKNOWN_DIGEST, Entry, RecoveryPoint


def checkpoint(session: Session, every: int) -> bytes | None:
    """A snapshot every so many steps, to keep replays short; None otherwise.

    Host environments get none: their snapshots are replays themselves.
    """
    return session.snapshot() if session.step_count % every == 0 and session.env.pure else None


def restore_session(
    environment: ServedEnvironment, point: RecoveryPoint, on_reply: Callable[[Entry, dict[str, Any]], None]
) -> Session:
    """The session, bit for bit; a `DivergedError` if a replayed reply differs from the original one.

    `on_reply` is called with each replayed entry that has a request id, and its reply.
    """
    entries = [entry for entry in point.after if not entry.is_note]
    if entries and not environment.replayable:
        message = f"an episode of {environment.id} cannot be replayed, and ended with the server; a reset opens another"
        raise ServerError("SESSION_ERROR", message)
    if point.snapshot is None:
        session = environment.new_session()
    else:
        session = Session.restore(point.snapshot, environment.env, environment.params)

    def check(entry: Entry) -> None:
        check_reply(environment, session, entry)
        if entry.request is not None:
            on_reply(entry, environment.form.reply(session, session.timestep))

    try:
        if point.snapshot is not None:
            check(next(entry for entry in reversed(point.before) if not entry.is_note))
        for entry in entries:
            session = replay_entry(environment, session, entry)
            check(entry)
    except BaseException:
        session.close()
        raise
    return session


def check_reply(environment: ServedEnvironment, session: Session, entry: Entry) -> None:
    """Raise if the reply to a replayed entry differs from the original one."""
    if entry.reply_digest not in (UNKNOWN_DIGEST, environment.form.digest(session.timestep)):
        where = f"step {session.step_count}" if entry.kind == "step" else "the reset"
        message = f"in the replay of this episode of {environment.id}, the reply to {where} differs from the original"
        raise DivergedError("replay", entry.kind, "the original reply", message)
