"""Idempotent requests: a repeated request id returns the first reply and is not performed again."""

from collections.abc import Callable
from typing import Any
from zlib import crc32

from tropism.errors import StateError, ValidationError, shorten
from tropism.serve.storage.protocol import RequestKey, Store
from tropism.wire.codec import encode

LONGEST_ID = 255
DIGEST_BYTES = 4  # the digest of the request, stored in front of its reply


def reply_once(
    store: Store, session: str, request: RequestKey, perform: Callable[[RequestKey], bytes], *, reproducible: bool
) -> bytes:
    """The stored reply to this request, or else a new one; a `reproducible` reply need not be made durable."""
    stored = store.reply(session, request.request_id)
    if stored is None:
        if store.reply_was_dropped(session, request.request_id):
            raise _conflict(request.request_id, "was performed, and its reply is no longer stored")
        reply = perform(request)
        save = store.cache_reply if reproducible else store.save_reply
        save(session, request.request_id, with_digest(request, reply))
        return reply
    if stored[:DIGEST_BYTES] != request.digest.to_bytes(DIGEST_BYTES):
        raise _conflict(request.request_id, "was a different one; use a new id for each request")
    return stored[DIGEST_BYTES:]


def request_key(request_id: str, kind: str, data: dict[str, Any]) -> RequestKey:
    if len(request_id) > LONGEST_ID:
        raise ValidationError("request_id", request_id, f"at most {LONGEST_ID} characters")
    return RequestKey(request_id, crc32(encode((kind, data))))


def with_digest(request: RequestKey, reply: bytes) -> bytes:
    """A reply, preceded by the digest of its request."""
    return request.digest.to_bytes(DIGEST_BYTES) + reply


def _conflict(request_id: str, reason: str) -> StateError:
    message = f"the request with the request_id {shorten(request_id)} {reason}"
    return StateError("request_id", request_id, "an unused id", message)
