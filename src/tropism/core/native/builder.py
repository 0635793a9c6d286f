"""The interface between the rules, which say what a primitive computes, and a backend that emits code for it."""

from typing import Any, NamedTuple, Protocol

import numpy as np

Scalar = Any  # one value in the emitted program; its type belongs to the backend
DType = np.dtype[Any]

INDEX = np.dtype(np.int64)


class Unsupported(Exception):  # noqa: N818 # a reason, which is reported, rather than an error
    """An environment that cannot be compiled natively: the primitive, and the reason."""

    def __init__(self, primitive: str, reason: str):
        super().__init__(f"{primitive}: {reason}")
        self.primitive = primitive
        self.reason = reason


class StridedView(NamedTuple):
    """An array in memory: element `i` is at index `offset + base + i · strides`; `base` is computed at run time."""

    pointer: Scalar
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    base: Scalar | None = None


class Origin(NamedTuple):
    """How a float of the traced program was computed: the name of an operation, or "constant" and its value."""

    name: str
    operands: tuple[Any, ...]


class Builder(Protocol):
    """Emits scalar operations. Integers wrap around; no operation traps except a division by zero.

    Operations of `op`: add, sub, mul, div, rem, neg, abs, min, max, and, or, xor, shl, lshr, ashr, popcount, clz,
    floor, ceil, round_even, round_away, sqrt, sin, cos, tan, pow, atan2, cbrt, copysign, fma. `min` and `max` of
    floats propagate NaN and order -0.0 below 0.0. Elementary functions in `functions` are operations too; the rules
    compute the others. `batch_lane`, if not None, is the number of an environment whose random bits are its part of
    one draw for a whole batch. `origins` belongs to the rules.
    """

    functions: frozenset[str]
    origins: dict[Scalar, Origin]
    batch_lane: Scalar | None

    def constant(self, value: Any, dtype: DType) -> Scalar: ...
    def op(self, name: str, dtype: DType, *operands: Scalar) -> Scalar: ...
    def compare(self, direction: str, dtype: DType, x: Scalar, y: Scalar) -> Scalar:
        """`direction`: eq, ne, lt, le, gt, ge; comparisons with NaN are false, except ne."""
        ...

    def select(self, condition: Scalar, dtype: DType, x: Scalar, y: Scalar) -> Scalar:
        """`x` where the condition is true, else `y`."""
        ...

    def convert(self, x: Scalar, source: DType, target: DType) -> Scalar:
        """Floats become integers by rounding towards zero, within the target's range; NaN becomes 0."""
        ...

    def bitcast(self, x: Scalar, source: DType, target: DType) -> Scalar: ...

    def allocate(self, dtype: DType, items: int) -> Scalar:
        """A pointer to memory that is valid until the program returns."""
        ...

    def load(self, pointer: Scalar, dtype: DType, index: Scalar) -> Scalar: ...
    def store(self, pointer: Scalar, dtype: DType, index: Scalar, value: Scalar) -> None: ...
