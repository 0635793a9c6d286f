"""Idempotent requests: a repeated request id returns the first reply and is not performed again."""

from collections.abc import Callable
from typing import Any
from zlib import crc32

from tropism.errors import StateError, ValidationError, shorten
from tropism.serve.storage.protocol import RequestKey
from tropism.serve.storage.working_memory import WorkingMemory
from tropism.wire.codec import encode

LONGEST_ID = 255


def reply_once(memory: WorkingMemory, request: RequestKey, perform: Callable[[], bytes]) -> bytes:
    """The stored reply, or else that of `perform`, which performs the request and stores its reply."""
    stored = memory.reply(request.request_id)
    if stored is None:
        if memory.reply_was_dropped(request.request_id):
            raise _conflict(request.request_id, "was performed, and its reply is no longer stored")
        return perform()
    digest, reply = stored
    if digest != request.digest:
        raise _conflict(request.request_id, "was a different one; use a new id for each request")
    return reply


def request_key(request_id: str, kind: str, data: dict[str, Any]) -> RequestKey:
    if len(request_id) > LONGEST_ID:
        raise ValidationError("request_id", request_id, f"at most {LONGEST_ID} characters")
    return RequestKey(request_id, crc32(encode((kind, data))))


def _conflict(request_id: str, reason: str) -> StateError:
    message = f"the request with the request_id {shorten(request_id)} {reason}"
    return StateError("request_id", request_id, "an unused id", message)
