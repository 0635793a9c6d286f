"""Encoding of requests and replies: JSON with a depth limit, and msgpack for arrays."""

import json
import re
from typing import Any

import msgspec

from tropism.errors import ServerError
from tropism.wire.limits import MAX_DEPTH, FloatReader, check_packed, check_structure

LARGE = 2**14  # bytes; the time to decode a larger message is limited in more ways
LONE_SURROGATE = "a string has a lone surrogate, \\ud800 to \\udfff without the other half of its pair"
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
PAIR = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..")

Id = str | int | float | bool | msgspec.UnsetType | None

# JSON; arrays and NumPy scalars become lists and numbers, NaN and infinity become null.
encode = msgspec.json.Encoder(enc_hook=lambda value: value.tolist()).encode


class Frame(msgspec.Struct, forbid_unknown_fields=True):
    """One request on a socket. The reply repeats `id`; `request_id` makes the request idempotent.

    A step with `after` or `episode_id` is refused unless the episode is the named one, after that many steps.
    """

    type: str
    data: dict[str, Any] | None = None
    id: Id = msgspec.UNSET
    request_id: str | None = None
    after: int | None = None
    episode_id: str | None = None


class FrameId(msgspec.Struct):
    """The id of a frame that may be otherwise invalid."""

    id: Id = msgspec.UNSET


def decode(raw: bytes | str) -> Any:
    """Decode untrusted JSON."""
    return _decode(_any, raw)


def decode_frame(raw: bytes | str) -> Frame:
    return _decode(_frame, raw)


def frame_id(raw: bytes | str) -> Id:
    """The id of an invalid frame, if it has a valid one."""
    try:
        return _decode(_frame_id_decoder, raw).id
    except ServerError:
        return msgspec.UNSET


def pack(value: Any) -> bytes:
    """Msgpack; an array is a map of dtype, shape and data."""
    return _packer.encode(value)


def unpack(raw: bytes) -> Any:
    """The inverse of `pack`, with arrays as maps, see `tropism.wire.arrays`."""
    check_packed(raw)
    try:
        return _unpacker.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ServerError("INVALID_JSON", f"a binary frame must be msgpack: {error}") from None


def _decode(decoder: Any, raw: bytes | str) -> Any:
    try:
        if len(raw) > MAX_DEPTH:
            check_structure(raw)
        if len(raw) > LARGE:
            decoder = msgspec.json.Decoder(decoder.type, float_hook=FloatReader())
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise ServerError("VALIDATION_ERROR", str(error)) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        reason = LONE_SURROGATE if _has_lone_surrogate(raw) else error
        raise ServerError("INVALID_JSON", f"the request is not JSON: {reason}") from None


def _has_lone_surrogate(raw: bytes | str) -> bool:
    """Whether a lone surrogate is the only error, or, in a large message, one of the errors.

    msgspec's message for it is misleading.
    """
    data = raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")
    if SURROGATE.search(data) is None:
        return False
    if len(data) > LARGE:
        return SURROGATE.search(PAIR.sub(b"", data.replace(b"\\\\", b""))) is not None
    try:
        json.dumps(json.loads(raw), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _to_map(value: Any) -> Any:
    return {"dtype": value.dtype.str, "shape": value.shape, "data": value.tobytes()}


_any = msgspec.json.Decoder()
_frame = msgspec.json.Decoder(Frame)
_frame_id_decoder = msgspec.json.Decoder(FrameId)
_packer = msgspec.msgpack.Encoder(enc_hook=_to_map)
_unpacker = msgspec.msgpack.Decoder()
