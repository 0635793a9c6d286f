"""Arrays in msgpack: a map of dtype, shape and bytes."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tropism.errors import ValidationError

KINDS = "biuf"


def array_of(data: Any, name: str) -> NDArray[Any]:
    """The array that `pack` wrote; a plain list is read as one."""
    if isinstance(data, list):
        return _plain(data, name)
    if not isinstance(data, dict) or set(data) != {"dtype", "shape", "data"}:
        raise ValidationError(name, data, "an array: a map of dtype, shape and data, or a list")
    dtype, shape, raw = _dtype(data["dtype"], name), data["shape"], data["data"]
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValidationError(f"{name}.shape", shape, "a list of whole numbers")
    expected = math.prod(shape) * dtype.itemsize
    if not isinstance(raw, bytes) or len(raw) != expected:
        raise ValidationError(f"{name}.data", raw, f"{expected} bytes, as the shape and dtype say")
    try:
        return np.frombuffer(raw, dtype).reshape(shape)
    except ValueError:
        raise ValidationError(f"{name}.shape", shape, "sizes that an array can have") from None


def arrays_of(data: Any) -> Any:
    """A whole reply with its arrays read."""
    if isinstance(data, dict):
        if set(data) == {"dtype", "shape", "data"}:
            return array_of(data, "array").copy()
        return {name: arrays_of(part) for name, part in data.items()}
    return [arrays_of(part) for part in data] if isinstance(data, list) else data


def _plain(data: list[Any], name: str) -> NDArray[Any]:
    try:
        array = np.asarray(data)
    except ValueError:
        raise ValidationError(name, data, "rows of equal length") from None
    if array.dtype.kind not in KINDS:
        raise ValidationError(name, data, "numbers")
    return array


def _dtype(text: Any, name: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(text) if isinstance(text, str) else None
    except TypeError:
        dtype = None
    if dtype is None or dtype.kind not in KINDS or dtype.byteorder == ">":
        raise ValidationError(f"{name}.dtype", text, "a little-endian number type such as '<f4'")
    return dtype
