"""Exactly once: a request that is repeated under its id gets the reply that it got, and is not done again."""

from collections.abc import Callable
from typing import Any
from zlib import crc32

from tropism.errors import StateError, ValidationError, shorten
from tropism.serve.store import Store
from tropism.wire.codec import encode

LONGEST_ID = 255
MARK = 4  # bytes before a kept reply, which say what had been asked


def once(store: Store, session: str, request_id: str, asked: Any, perform: Callable[[], bytes]) -> bytes:
    """The reply to what was asked under this id, now or before."""
    if len(request_id) > LONGEST_ID:
        raise ValidationError("request_id", request_id, f"at most {LONGEST_ID} characters")
    mark = crc32(encode(asked)).to_bytes(MARK)
    kept = store.reply(session, request_id)
    if kept is None:
        if store.answered(session, request_id):
            raise _refused(request_id, "was done, and its reply is no longer kept")
        reply = perform()
        store.remember(session, request_id, mark + reply)
        return reply
    if kept[:MARK] != mark:
        raise _refused(request_id, "was another one; give each an id of its own")
    return kept[MARK:]


def _refused(request_id: str, why: str) -> StateError:
    message = f"the request with the request_id {shorten(request_id)} {why}"
    return StateError("request_id", request_id, "an id of its own", message)
