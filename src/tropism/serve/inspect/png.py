"""A PNG encoder that needs only the standard library and NumPy."""

import struct
from typing import Any
from zlib import compress, crc32

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
EIGHT_BIT = {1: (8, 0, 0, 0, 0), 3: (8, 2, 0, 0, 0)}  # by number of channels: greyscale, or RGB
UP = 2  # the filter of every row: the difference to the row above, which is small in most pictures
LEVEL = 4  # of compression, of 9


def png(picture: NDArray[Any]) -> bytes:
    """Encode an (H, W, 3) or (H, W, 1) uint8 picture."""
    height, width, channels = picture.shape
    rows = picture.reshape(height, width * channels)
    above = np.vstack([np.zeros_like(rows[:1]), rows[:-1]])
    filtered = np.hstack([np.full((height, 1), UP, np.uint8), rows - above])
    header = struct.pack(">2I5B", width, height, *EIGHT_BIT[channels])
    parts = ((b"IHDR", header), (b"IDAT", compress(filtered.tobytes(), LEVEL)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc32(kind + data))
