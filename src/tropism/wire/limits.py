"""Limits on untrusted JSON and msgpack that bound the time to decode a message: decoding blocks the event loop."""

from itertools import accumulate
from math import isinf

from tropism.errors import ServerError

MAX_DEPTH = 64  # levels of nesting
MAX_CONTAINERS = 2**17  # arrays and objects in one message
MAX_EXTREME_FLOATS = 2**16  # numbers beyond 1e±99 in one message; any parser needs bignums for those
MAX_UNPACKED_VALUES = 2**14  # in a binary message that may have too many containers

BRACKET_DELTAS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # 1 and -1, as signed bytes
NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'[]{}"')
# Bytes that begin a container in msgpack: fixmap and fixarray, array and map with 16 and 32 bits.
CONTAINER_BYTES = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0)))


def check_structure(raw: bytes | str) -> None:
    """Reject JSON that is nested too deep or has too many containers; brackets inside strings do not count."""
    opened = raw.count("[") + raw.count("{") if isinstance(raw, str) else raw.count(b"[") + raw.count(b"{")
    if opened <= MAX_DEPTH:
        return
    brackets = _brackets(raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw)
    if brackets.count(b"[") + brackets.count(b"{") > MAX_CONTAINERS:
        raise ServerError("INVALID_JSON", f"the JSON has more than {MAX_CONTAINERS} arrays and objects")
    if max(accumulate(memoryview(brackets.translate(BRACKET_DELTAS)).cast("b")), default=0) > MAX_DEPTH:
        raise ServerError("INVALID_JSON", f"the JSON is nested more than {MAX_DEPTH} levels deep")


def _brackets(data: bytes) -> bytes:
    """The brackets outside strings: those with an even number of quotes before them."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = data.translate(None, NOT_STRUCTURE).replace(b'""', b"")  # which keeps every bracket's parity
    return b"".join(structure.split(b'"')[::2])


class FloatReader:
    """The `float_hook` of a decoder of large messages, for one message.

    The parser of msgspec needs microseconds for a number such as 1.5e300, twenty times as long as Python's.
    """

    def __init__(self) -> None:
        self._extreme = 0

    def __call__(self, text: str) -> float:
        value = float(text)
        if 1e-99 < value < 1e99 or -1e99 < value < -1e-99:
            return value
        return self._count_extreme(text, value)

    def _count_extreme(self, text: str, value: float) -> float:
        if isinf(value):
            raise ServerError("VALIDATION_ERROR", f"Number out of range: {text[:20]}")
        self._extreme += "e" in text or "E" in text
        if self._extreme > MAX_EXTREME_FLOATS:
            raise ServerError("INVALID_JSON", f"the JSON has more than {MAX_EXTREME_FLOATS} numbers beyond 1e±99")
        return value


def check_packed(raw: bytes) -> None:
    """Reject msgpack that has too many containers; arrays should be maps of dtype, shape and data, not lists."""
    if len(raw) - len(raw.translate(None, CONTAINER_BYTES)) <= MAX_CONTAINERS:
        return  # even if all of these bytes begin a container
    position = values = 0
    while position < len(raw):
        position, values = position + _size(raw, position), values + 1
        if values > MAX_UNPACKED_VALUES:
            message = f"more than {MAX_UNPACKED_VALUES} values; send arrays as maps of dtype, shape and data"
            raise ServerError("INVALID_JSON", f"the binary frame has {message}")


def _size(raw: bytes, position: int) -> int:
    """The bytes of a value in msgpack, of a container without its items."""
    first = raw[position]
    if 0xA0 <= first < 0xC0:  # a short string
        return 1 + (first & 0x1F)
    if not 0xC4 <= first < 0xE0:
        return 1
    header, is_counted = HEADERS[first - 0xC4]
    content = int.from_bytes(raw[position + 1 : position + 1 + is_counted], "big") if is_counted else 0
    return header + content


# Of the first bytes 0xc4 to 0xdf: the bytes of the header, or of the whole number; the bytes of the length, if any.
HEADERS = (
    *((2, 1), (3, 2), (5, 4)),  # bytes
    *((3, 1), (4, 2), (6, 4)),  # extension types
    *((5, 0), (9, 0)),  # floats
    *((2, 0), (3, 0), (5, 0), (9, 0)) * 2,  # integers
    *((3, 0), (4, 0), (6, 0), (10, 0), (18, 0)),  # extension types of a fixed size
    *((2, 1), (3, 2), (5, 4)),  # strings
    *((3, 0), (5, 0)) * 2,  # arrays and maps: their items follow
)
