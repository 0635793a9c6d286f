"""Requests and replies as bytes: JSON with a limit on its depth, msgpack where arrays travel."""

import json
import re
from itertools import accumulate
from typing import Any

import msgspec

from tropism.errors import ServerError

DEEPEST = 64  # levels of nesting in a stranger's JSON
LONE = "a string has a lone surrogate, \\ud800 to \\udfff without the other half of its pair"

# Matches from every quote on, closed or not, so that no text makes it search twice.
STRINGS = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)
UP_OR_DOWN = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # 1 and -1, as signed bytes
NO_BRACKET = bytes(byte for byte in range(256) if byte not in b"[]{}")


Id = str | int | float | bool | msgspec.UnsetType | None


class Frame(msgspec.Struct, forbid_unknown_fields=True):
    """One request on a socket. `id` comes back in the reply; `request_id` makes a step happen exactly once."""

    type: str
    data: dict[str, Any] | None = None
    id: Id = msgspec.UNSET
    request_id: str | None = None


class Named(msgspec.Struct):
    """The id of a frame that may be wrong in all else."""

    id: Id = msgspec.UNSET


def encode(value: Any) -> bytes:
    """JSON; arrays become lists, and what is no number (NaN, infinity) becomes null."""
    return _encoder.encode(value)


def decode(raw: bytes | str) -> Any:
    """Any JSON value, from a stranger."""
    return _decode(_any.decode, raw)


def decode_frame(raw: bytes | str) -> Frame:
    return _decode(_frame.decode, raw)


def frame_id(raw: bytes | str) -> Id:
    """The id of a frame that could not be read, if it has one that can be sent back."""
    try:
        return _decode(_named.decode, raw).id
    except ServerError:
        return msgspec.UNSET


def pack(value: Any) -> bytes:
    """Msgpack; an array is a map of its dtype, its shape and its bytes."""
    return _packer.encode(value)


def unpack(raw: bytes) -> Any:
    """What `pack` wrote, arrays still as maps: see `tropism.wire.arrays`."""
    try:
        return _unpacker.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ServerError("INVALID_JSON", f"a binary frame must be msgpack: {error}") from None


def _decode(decoder: Any, raw: bytes | str) -> Any:
    try:
        _check_depth(raw)
        return decoder(raw)
    except msgspec.ValidationError as error:
        raise ServerError("VALIDATION_ERROR", str(error)) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        reason = LONE if _has_lone_surrogate(raw) else error
        raise ServerError("INVALID_JSON", f"the request is not JSON: {reason}") from None


def _has_lone_surrogate(raw: bytes | str) -> bool:
    """Whether this would be JSON, were it not for half a character: msgspec has misleading words for that."""
    try:
        json.dumps(json.loads(raw), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _check_depth(raw: bytes | str) -> None:
    """Refuse deep nesting before anything recurses into it; brackets inside strings do not count."""
    if len(raw) <= DEEPEST:
        return
    opened = raw.count("[") + raw.count("{") if isinstance(raw, str) else raw.count(b"[") + raw.count(b"{")
    if opened <= DEEPEST:
        return
    data = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    brackets = STRINGS.sub(b"", data).translate(UP_OR_DOWN, NO_BRACKET)
    if max(accumulate(memoryview(brackets).cast("b")), default=0) > DEEPEST:
        raise ServerError("INVALID_JSON", f"the JSON is nested more than {DEEPEST} levels deep")


def _plain(value: Any) -> Any:
    """Arrays and NumPy numbers as lists and numbers."""
    return value.tolist()


def _array(value: Any) -> Any:
    return {"dtype": value.dtype.str, "shape": value.shape, "data": value.tobytes()}


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_any = msgspec.json.Decoder()
_frame = msgspec.json.Decoder(Frame)
_named = msgspec.json.Decoder(Named)
_packer = msgspec.msgpack.Encoder(enc_hook=_array)
_unpacker = msgspec.msgpack.Decoder()
