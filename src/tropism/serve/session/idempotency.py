"""Exactly once: a request that is repeated under its id gets the reply that it got, and is not done again."""

from collections.abc import Callable
from typing import Any
from zlib import crc32

from tropism.errors import StateError, ValidationError, shorten
from tropism.serve.storage.protocol import Asked, Store
from tropism.wire.codec import encode

LONGEST_ID = 255
MARK = 4  # bytes before a kept reply, which say what had been asked


def once(store: Store, session: str, asked: Asked, perform: Callable[[Asked], bytes], *, replayed: bool) -> bytes:
    """The reply to what was asked under this id, now or before; `replayed` where a replay gives it again."""
    kept = store.reply(session, asked.request_id)
    if kept is None:
        if store.answered(session, asked.request_id):
            raise _refused(asked.request_id, "was done, and its reply is no longer kept")
        reply = perform(asked)
        keep = store.remember if replayed else store.keep_reply
        keep(session, asked.request_id, to_keep(asked, reply))
        return reply
    if kept[:MARK] != asked.mark.to_bytes(MARK):
        raise _refused(asked.request_id, "was another one; give each an id of its own")
    return kept[MARK:]


def asked_under(request_id: str, kind: str, data: dict[str, Any]) -> Asked:
    if len(request_id) > LONGEST_ID:
        raise ValidationError("request_id", request_id, f"at most {LONGEST_ID} characters")
    return Asked(request_id, crc32(encode((kind, data))))


def to_keep(asked: Asked, reply: bytes) -> bytes:
    """A reply, with what it is the reply to."""
    return asked.mark.to_bytes(MARK) + reply


def _refused(request_id: str, why: str) -> StateError:
    message = f"the request with the request_id {shorten(request_id)} {why}"
    return StateError("request_id", request_id, "an id of its own", message)
