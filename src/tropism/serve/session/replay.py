"""Restores sessions from a snapshot and the entries written after it."""

from collections.abc import Callable
from typing import Any
from zlib import crc32

from tropism.core.session.session import Session
from tropism.errors import DivergedError, ServerError
from tropism.serve.inspect.timeline import replay_entry
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.protocol import Entry, RecoveryPoint
from tropism.wire.codec import encode

CHECKPOINT_EVERY = 1000  # steps


def checkpoint(session: Session) -> bytes | None:
    """A snapshot every `CHECKPOINT_EVERY` steps, to keep replays short; None otherwise.

    Host environments get none: their snapshots are replays themselves.
    """
    return session.snapshot() if session.step_count % CHECKPOINT_EVERY == 0 and session.env.pure else None


def restore_session(
    environment: ServedEnvironment, point: RecoveryPoint, on_reply: Callable[[Entry, dict[str, Any]], None]
) -> Session:
    """The session, bit for bit; a `DivergedError` if a replayed reply differs from the original one.

    `on_reply` is called with each replayed entry and its reply.
    """
    if point.entries and not environment.replayable:
        message = f"an episode of {environment.id} cannot be replayed, and ended with the server; a reset opens another"
        raise ServerError("SESSION_ERROR", message)
    if point.snapshot is None:
        session = environment.new_session()
    else:
        session = Session.restore(point.snapshot, environment.env, environment.params)
    try:
        for entry in point.preceding:
            if entry.request is not None:  # entries of forks have none; their episode id may differ from the parent's
                on_reply(entry, _check_reply(environment, session, entry))
        for entry in point.entries:
            session = replay_entry(environment, session, entry)
            if entry.kind != "reseed":
                on_reply(entry, _check_reply(environment, session, entry))
    except BaseException:
        session.close()
        raise
    return session


def _check_reply(environment: ServedEnvironment, session: Session, entry: Entry) -> dict[str, Any]:
    reply = environment.form.reply(session, session.timestep)
    if crc32(encode(reply)) != entry.reply_digest:
        where = f"step {session.step_count}" if entry.kind == "step" else "the reset"
        message = f"in the replay of this episode of {environment.id}, the reply to {where} differs from the original"
        raise DivergedError("replay", entry.kind, "the original reply", message)
    return reply
