"""Sessions taken up again: from where they stood, and what they did since."""

from collections.abc import Callable
from typing import Any
from zlib import crc32

from tropism.core.session.session import Session
from tropism.errors import DivergedError, ServerError
from tropism.serve.inspect.timeline import play
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.protocol import Entry, Saved
from tropism.wire.codec import encode

CHECKPOINT = 1000  # steps


def checkpoint(session: Session) -> bytes | None:
    """A snapshot now and then, so that a replay is short; that of a host environment is a replay itself."""
    return session.snapshot() if session.step_count % CHECKPOINT == 0 and session.env.traced else None


def revived(environment: ServedEnvironment, saved: Saved, told: Callable[[Entry, dict[str, Any]], None]) -> Session:
    """The session as it was, bit for bit; one that answers otherwise than it did is refused.

    `told` hears what was replayed, and the reply to it.
    """
    if saved.entries and not environment.replayable:
        words = f"an episode of {environment.id} cannot be replayed, and ended with the server; a reset opens another"
        raise ServerError("SESSION_ERROR", words)
    if saved.snapshot is None:
        session = environment.fresh()
    else:
        session = Session.restore(saved.snapshot, environment.env, environment.params)
    try:
        for entry in saved.before:
            if entry.asked is not None:  # none of a fork, which may have another episode id than what it is a fork of
                told(entry, _same(environment, session, entry))
        for entry in saved.entries:
            session = play(environment, session, entry)
            if entry.kind != "reseed":
                told(entry, _same(environment, session, entry))
    except BaseException:
        session.close()
        raise
    return session


def _same(environment: ServedEnvironment, session: Session, entry: Entry) -> dict[str, Any]:
    reply = environment.form.reply(session, session.timestep)
    if crc32(encode(reply)) != entry.digest:
        where = f"step {session.step_count}" if entry.kind == "step" else "the reset"
        message = f"replayed, {where} of this episode of {environment.id} is not answered as it was"
        raise DivergedError("replay", entry.kind, "the reply that was given", message)
    return reply
