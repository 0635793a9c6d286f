"""The bytes of a snapshot: a JSON header, a body of raw words, and a digest of both."""

import json
import struct
from hashlib import blake2b
from typing import Any

import jax
import numpy as np

from tropism.core.compiled.packing import LARGEST_PACKED
from tropism.errors import ValidationError

MAGIC = b"tropism1"
DIGEST = 16  # bytes


def encode(header: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(header, default=_plain).encode()
    data = MAGIC + struct.pack("<I", len(text)) + text + body
    return data + blake2b(data, digest_size=DIGEST).digest()


def decode(data: bytes) -> tuple[dict[str, Any], bytes]:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ValidationError("snapshot", data, "bytes made by Session.snapshot()")
    data = bytes(data)
    content, digest = data[:-DIGEST], data[-DIGEST:]
    if not data.startswith(MAGIC) or blake2b(content, digest_size=DIGEST).digest() != digest:
        raise ValidationError("snapshot", data[:24], "bytes made by Session.snapshot(), complete and unchanged")
    start = len(MAGIC) + 4
    (length,) = struct.unpack("<I", data[len(MAGIC) : start])
    return json.loads(content[start : start + length]), content[start + length :]


def write_params(params: Any) -> list[Any]:
    """The leaves of params as JSON; None for a large or non-numeric one, which is taken from the defaults."""
    return [_write_leaf(leaf) for leaf in jax.tree.leaves(params)]


def read_params(defaults: Any, stored: list[Any]) -> Any:
    leaves, treedef = jax.tree.flatten(defaults)
    if len(leaves) != len(stored):
        raise ValidationError("snapshot", f"{len(stored)} params", f"the {len(leaves)} of this environment")
    return treedef.unflatten([_read_leaf(leaf, data) for leaf, data in zip(leaves, stored, strict=True)])


def _write_leaf(leaf: Any) -> Any:
    if isinstance(leaf, bool | int | float):
        return leaf
    if isinstance(leaf, np.ndarray | np.generic | jax.Array) and np.size(leaf) <= LARGEST_PACKED:
        return {"dtype": np.asarray(leaf).dtype.str, "values": np.asarray(leaf).tolist()}
    return None


def _read_leaf(default: Any, data: Any) -> Any:
    if isinstance(data, dict):
        return np.asarray(data["values"], data["dtype"])
    return default if data is None else data


def _plain(value: Any) -> Any:
    """Arrays and NumPy numbers in options become lists and numbers."""
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    raise ValidationError("options", value, "JSON values, so that the episode can be stored")
