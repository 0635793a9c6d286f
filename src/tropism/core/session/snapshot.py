"""The bytes of a snapshot: a JSON header, a body of raw words, and a digest of both."""

import json
import struct
from hashlib import blake2b
from typing import Any

from tropism.errors import ValidationError

MAGIC = b"tropism2"
OLDER = (b"tropism1",)
DIGEST = 16  # bytes


def encode(header: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(header, default=_plain).encode()
    data = MAGIC + struct.pack("<I", len(text)) + text + body
    return data + blake2b(data, digest_size=DIGEST).digest()


def decode(data: bytes) -> tuple[dict[str, Any], bytes]:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ValidationError("snapshot", data, "bytes made by Session.snapshot()")
    data = bytes(data)
    if data.startswith(OLDER):
        raise ValidationError("snapshot", data[: len(MAGIC)], f"{MAGIC!r}; this one was made by an older Tropism")
    content, digest = data[:-DIGEST], data[-DIGEST:]
    if not data.startswith(MAGIC) or blake2b(content, digest_size=DIGEST).digest() != digest:
        raise ValidationError("snapshot", data[:24], "bytes made by Session.snapshot(), complete and unchanged")
    start = len(MAGIC) + 4
    (length,) = struct.unpack("<I", data[len(MAGIC) : start])
    return json.loads(content[start : start + length]), content[start + length :]


def _plain(value: Any) -> Any:
    """Arrays and NumPy numbers in options become lists and numbers."""
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    raise ValidationError("options", value, "JSON values, so that the episode can be stored")
