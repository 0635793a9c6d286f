"""Spaces of whole numbers: Discrete, MultiDiscrete, MultiBinary."""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import random
from numpy.typing import NDArray

from tropism.core.spaces.space import Space, array_schema, as_array, is_integer, is_traced, tuple_schema
from tropism.errors import ValidationError

INT32_MAX = 2**31 - 1


def draw_below(key: Any, n: Any, shape: tuple[int, ...]) -> Any:
    """Uniform int32 in [0, n): one hash per number, biased by at most n / 2**32."""
    bits = random.bits(key, shape, jnp.uint32)
    return (bits % jnp.asarray(n).astype(jnp.uint32)).astype(jnp.int32)


class Discrete(Space):
    """The `n` whole numbers from `start`."""

    n: int
    start: int

    def __init__(self, n: Any, start: Any = 0):
        if not is_traced(n):
            if not is_integer(n) or not 1 <= int(n) <= INT32_MAX:
                raise ValidationError("n", n, "a whole number from 1 to 2**31 - 1")
            n = int(n)
        if not is_traced(start):
            if not is_integer(start) or abs(int(start)) > INT32_MAX:
                raise ValidationError("start", start, "a whole number that fits in int32")
            start = int(start)
        self.n = n
        self.start = start

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int32)

    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        return self.start + draw_below(key, self.n, shape)

    def contains(self, x: Any) -> Any:
        if not is_integer(x):
            return False
        if is_traced(x, self.n, self.start):
            return (x >= self.start) & (x < self.start + self.n)
        return self.start <= int(x) < self.start + self.n

    def coerce(self, x: Any, name: str = "action") -> int:
        if is_integer(x) and self.start <= int(x) < self.start + self.n:
            return int(x)
        raise ValidationError(name, x, f"a whole number in {self!r}: {self.start} to {self.start + self.n - 1}")

    def json_schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.start, "maximum": self.start + self.n - 1}

    def identity(self) -> tuple[Any, ...]:
        return self.n, self.start

    def __repr__(self) -> str:
        return f"Discrete({self.n})" if self.start == 0 else f"Discrete({self.n}, start={self.start})"


class IntegerArray(Space):
    """Abstract: arrays of whole numbers within bounds."""

    @abstractmethod
    def bounds(self) -> tuple[Any, Any]:
        """The least and the largest value of each entry."""

    def accepts_dtype(self, dtype: Any) -> bool:
        return bool(jnp.issubdtype(dtype, np.integer))

    def contains(self, x: Any) -> Any:
        array: Any = x if is_traced(x) else as_array(x)
        if array is None or array.shape != self.shape or not self.accepts_dtype(array.dtype):
            return False
        low, high = self.bounds()
        inside = ((array >= low) & (array <= high)).all()
        return inside if is_traced(x) else bool(inside)

    def coerce(self, x: Any, name: str = "action") -> NDArray[Any]:
        if is_traced(x) or not self.contains(x):
            raise ValidationError(name, x, f"whole numbers in {self!r}")
        return np.asarray(x).astype(self.dtype)


class MultiDiscrete(IntegerArray):
    """An array of whole numbers, entry i from `start[i]` to `start[i] + nvec[i] - 1`."""

    nvec: NDArray[Any]
    start: NDArray[Any]

    def __init__(self, nvec: Any, start: Any = None):
        self.nvec = _to_integers("nvec", nvec)
        self.start = np.zeros_like(self.nvec) if start is None else _to_integers("start", start)
        if self.nvec.size == 0 or (self.nvec < 1).any():
            raise ValidationError("nvec", nvec, "whole numbers of at least 1")
        if self.start.shape != self.nvec.shape:
            raise ValidationError("start", start, f"the shape of nvec, {self.nvec.shape}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.nvec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int32)

    def bounds(self) -> tuple[Any, Any]:
        return self.start, self.start + self.nvec - 1

    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        return jnp.asarray(self.start) + draw_below(key, self.nvec, shape + self.shape)

    def json_schema(self) -> dict[str, Any]:
        return _range_schema(*self.bounds())

    def identity(self) -> tuple[Any, ...]:
        return self.shape, self.nvec.tobytes(), self.start.tobytes()

    def __repr__(self) -> str:
        start = f", start={self.start.tolist()}" if self.start.any() else ""
        return f"MultiDiscrete({self.nvec.tolist()}{start})"


class MultiBinary(IntegerArray):
    """An array of zeros and ones; members of any integer dtype, or bool, are accepted and cast to `dtype`."""

    shape_: tuple[int, ...] = eqx.field(static=True)
    dtype_: np.dtype[Any] = eqx.field(static=True)

    def __init__(self, n: Any, dtype: Any = np.int8):
        sizes = tuple(n) if isinstance(n, tuple | list | np.ndarray) else (n,)
        if not sizes or not all(is_integer(size) and int(size) >= 1 for size in sizes):
            raise ValidationError("n", n, "a whole number of at least 1, or a shape of such")
        if dtype not in (np.int8, np.int32):
            raise ValidationError("dtype", dtype, "int8 or int32")
        self.shape_ = tuple(int(size) for size in sizes)
        self.dtype_ = np.dtype(dtype)

    @property
    def n(self) -> int:
        return math.prod(self.shape_)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.shape_

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.dtype_

    def bounds(self) -> tuple[Any, Any]:
        return 0, 1

    def accepts_dtype(self, dtype: Any) -> bool:
        return bool(jnp.issubdtype(dtype, np.bool_)) or super().accepts_dtype(dtype)

    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        return random.bernoulli(key, shape=shape + self.shape).astype(self.dtype)

    def json_schema(self) -> dict[str, Any]:
        return array_schema({"type": "integer", "minimum": 0, "maximum": 1}, self.shape)

    def identity(self) -> tuple[Any, ...]:
        return self.shape_, self.dtype_

    def __repr__(self) -> str:
        dtype = "" if self.dtype == np.int8 else f", {self.dtype}"
        return f"MultiBinary({self.shape_[0] if len(self.shape_) == 1 else self.shape_}{dtype})"


def _range_schema(low: Any, high: Any) -> dict[str, Any]:
    """The schema of integers with individual bounds."""
    if low.ndim == 0:
        return {"type": "integer", "minimum": int(low), "maximum": int(high)}
    return tuple_schema([_range_schema(*bounds) for bounds in zip(low, high, strict=True)])


def _to_integers(name: str, values: Any) -> NDArray[Any]:
    array = as_array(values)
    if array is None or array.dtype.kind not in "iu" or (abs(array.astype(np.int64)) > INT32_MAX).any():
        raise ValidationError(name, values, "an array of whole numbers that fit in int32")
    array = np.array(array, np.int64)
    array.setflags(write=False)
    return array
