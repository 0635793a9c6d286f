"""Arrays in msgpack: a map of dtype, shape and bytes."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tropism.errors import ValidationError

NUMERIC_KINDS = "biuf"


def decode_array(data: Any, name: str) -> NDArray[Any]:
    """Decode an array that `pack` encoded; a plain list is also accepted."""
    if isinstance(data, list):
        return _from_list(data, name)
    if not isinstance(data, dict) or set(data) != {"dtype", "shape", "data"}:
        raise ValidationError(name, data, "an array: a map of dtype, shape and data, or a list")
    dtype, shape, raw = _dtype(data["dtype"], name), data["shape"], data["data"]
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValidationError(f"{name}.shape", shape, "a list of non-negative integers")
    expected = math.prod(shape) * dtype.itemsize
    if not isinstance(raw, bytes) or len(raw) != expected:
        raise ValidationError(f"{name}.data", raw, f"{expected} bytes, according to shape and dtype")
    try:
        return np.frombuffer(raw, dtype).reshape(shape)
    except ValueError:
        raise ValidationError(f"{name}.shape", shape, "a valid array shape") from None


def decode_arrays(data: Any) -> Any:
    """Decode all arrays in a reply."""
    if isinstance(data, dict):
        if set(data) == {"dtype", "shape", "data"}:
            return decode_array(data, "array").copy()
        return {name: decode_arrays(part) for name, part in data.items()}
    return [decode_arrays(part) for part in data] if isinstance(data, list) else data


def _from_list(data: list[Any], name: str) -> NDArray[Any]:
    try:
        array = np.asarray(data)
    except ValueError:
        raise ValidationError(name, data, "rows of equal length") from None
    if array.dtype.kind not in NUMERIC_KINDS:
        raise ValidationError(name, data, "numbers")
    return array


def _dtype(text: Any, name: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(text) if isinstance(text, str) else None
    except TypeError:
        dtype = None
    if dtype is None or dtype.kind not in NUMERIC_KINDS or dtype.byteorder == ">":
        raise ValidationError(f"{name}.dtype", text, "a little-endian number type such as '<f4'")
    return dtype
