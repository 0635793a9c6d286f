"""Arithmetic, comparisons, logic and conversions, element by element."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.lax import RoundingMethod

from tropism.core.native.builder import Builder, DType, Scalar, Unsupported
from tropism.core.native.scalarize import Scalars, as_scalars, map_scalars, rule

DIRECT = {
    "neg": "neg",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "floor": "floor",
    "ceil": "ceil",
    "population_count": "popcount",
    "clz": "clz",
}
BOOL = np.dtype(bool)


def elementwise(equation: Any, function: Callable[..., Scalar], *arrays: Scalars) -> list[Scalars]:
    """Apply `function(dtype, *scalars)`, with the dtype of the first input."""
    dtype = dtype_of(equation)
    return [map_scalars(lambda *items: function(dtype, *items), *arrays)]


def dtype_of(equation: Any) -> DType:
    return np.dtype(equation.invars[0].aval.dtype)


@rule(*DIRECT)
def direct(b: Builder, equation: Any, *arrays: Scalars) -> list[Scalars]:
    name = DIRECT[equation.primitive.name]
    if dtype_of(equation) == BOOL and name not in ("and", "or", "xor"):
        raise Unsupported(name, "booleans")
    return elementwise(equation, lambda dtype, *items: b.op(name, dtype, *items), *arrays)


@rule("max", "min")
def extremum(b: Builder, equation: Any, x: Scalars, y: Scalars) -> list[Scalars]:
    name = equation.primitive.name
    return elementwise(equation, lambda dtype, *items: combine(b, name, dtype, *items), x, y)


def combine(b: Builder, name: str, dtype: DType, x: Scalar, y: Scalar) -> Scalar:
    """An operation of two scalars; the extremum of booleans is a logical one."""
    return b.op({"max": "or", "min": "and"}.get(name, name) if dtype == BOOL else name, dtype, x, y)


@rule("clamp")
def clamp(b: Builder, equation: Any, low: Scalars, x: Scalars, high: Scalars) -> list[Scalars]:
    def limit(dtype: DType, low: Scalar, x: Scalar, high: Scalar) -> Scalar:
        return combine(b, "min", dtype, combine(b, "max", dtype, low, x), high)

    return elementwise(equation, limit, low, x, high)


@rule("not")
def invert(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    ones = 1 if dtype_of(equation) == BOOL else -1
    return elementwise(equation, lambda dtype, item: b.op("xor", dtype, item, b.constant(ones, dtype)), x)


@rule("abs")
def absolute(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    if dtype_of(equation).kind in "bu":
        return [x]
    return elementwise(equation, lambda dtype, item: b.op("abs", dtype, item), x)


@rule("sign")
def sign(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    def of(dtype: DType, item: Scalar) -> Scalar:
        zero, one = b.constant(0, dtype), b.constant(1, dtype)
        nonzero = b.select(b.compare("ne", dtype, item, zero), dtype, one, zero)
        if dtype.kind == "f":
            is_nan = b.compare("ne", dtype, item, item)
            return b.select(is_nan, dtype, item, b.op("copysign", dtype, nonzero, item))
        return b.select(b.compare("lt", dtype, item, zero), dtype, b.constant(-1, dtype), nonzero)

    return elementwise(equation, of, x)


@rule("round")
def rounding(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    even = equation.params["rounding_method"] == RoundingMethod.TO_NEAREST_EVEN
    return elementwise(equation, lambda dtype, item: b.op("round_even" if even else "round_away", dtype, item), x)


@rule("is_finite")
def is_finite(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    def of(dtype: DType, item: Scalar) -> Scalar:
        return b.compare("lt", dtype, b.op("abs", dtype, item), b.constant(np.inf, dtype))

    return elementwise(equation, of, x)


@rule("rem")
def remainder(b: Builder, equation: Any, x: Scalars, y: Scalars) -> list[Scalars]:
    of = b.op if dtype_of(equation).kind == "f" else lambda *args: divide_integers(b, *args)
    return elementwise(equation, lambda dtype, *items: of("rem", dtype, *items), x, y)


def divide_integers(b: Builder, name: str, dtype: DType, x: Scalar, y: Scalar) -> Scalar:
    """As in XLA, x / 0 has all bits set, x % 0 is x, and the smallest integer / -1 wraps around."""
    zero, one, minus_one = (b.constant(value, dtype) for value in (0, 1, -1))
    by_zero = b.compare("eq", dtype, y, zero)
    divisor = b.select(by_zero, dtype, one, y)
    if dtype.kind == "i":
        least = b.compare("eq", dtype, x, b.constant(np.iinfo(dtype).min, dtype))
        overflow = b.op("and", BOOL, least, b.compare("eq", dtype, y, minus_one))
        divisor = b.select(overflow, dtype, one, divisor)
    return b.select(by_zero, dtype, minus_one if name == "div" else x, b.op(name, dtype, x, divisor))


@rule("shift_left", "shift_right_logical", "shift_right_arithmetic")
def shift(b: Builder, equation: Any, x: Scalars, y: Scalars) -> list[Scalars]:
    name = {"shift_left": "shl", "shift_right_logical": "lshr", "shift_right_arithmetic": "ashr"}[
        equation.primitive.name
    ]

    def of(dtype: DType, item: Scalar, amount: Scalar) -> Scalar:
        """A shift by at least the width gives 0, or the sign."""
        unsigned = np.dtype(f"u{dtype.itemsize}")
        last = b.constant(dtype.itemsize * 8 - 1, dtype)
        inside = b.compare("le", unsigned, amount, last)
        limited = b.op(name, dtype, item, b.select(inside, dtype, amount, last))
        return limited if name == "ashr" else b.select(inside, dtype, limited, b.constant(0, dtype))

    return elementwise(equation, of, x, y)


@rule("eq", "ne", "lt", "le", "gt", "ge")
def comparison(b: Builder, equation: Any, x: Scalars, y: Scalars) -> list[Scalars]:
    direction = equation.primitive.name
    return elementwise(equation, lambda dtype, *items: b.compare(direction, dtype, *items), x, y)


@rule("select_n")
def select_n(b: Builder, equation: Any, which: Scalars, *cases: Scalars) -> list[Scalars]:
    dtype, index = np.dtype(equation.outvars[0].aval.dtype), dtype_of(equation)

    def pick(which: Scalar, *items: Scalar) -> Scalar:
        if index == BOOL:
            return b.select(which, dtype, items[-1], items[0])
        result = items[-1]
        for number in range(len(items) - 2, -1, -1):  # an index outside the range is clamped
            result = b.select(b.compare("le", index, which, b.constant(number, index)), dtype, items[number], result)
        return result

    return [map_scalars(pick, which, *cases)]


@rule("convert_element_type")
def convert(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    target = np.dtype(equation.params["new_dtype"])
    return elementwise(equation, lambda dtype, item: b.convert(item, dtype, target), x)


@rule("bitcast_convert_type")
def bitcast(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    source, target = dtype_of(equation), np.dtype(equation.params["new_dtype"])
    if BOOL in (source, target):
        raise Unsupported("bitcast_convert_type", "booleans")
    if source.itemsize == target.itemsize:
        return [map_scalars(lambda item: b.bitcast(item, source, target), x)]
    parts = _split if source.itemsize > target.itemsize else _join
    return [parts(b, x, source, target)]


def _split(b: Builder, x: Scalars, source: DType, target: DType) -> Scalars:
    whole, part = unsigned_of(source), unsigned_of(target)
    items: list[Scalar] = []
    for item in x.reshape(-1):
        bits = b.bitcast(item, source, whole)
        for number in range(source.itemsize // target.itemsize):
            shifted = b.op("lshr", whole, bits, b.constant(number * target.itemsize * 8, whole)) if number else bits
            items.append(b.bitcast(b.convert(shifted, whole, part), part, target))
    return as_scalars(items, (*x.shape, source.itemsize // target.itemsize))


def _join(b: Builder, x: Scalars, source: DType, target: DType) -> Scalars:
    whole, part = unsigned_of(target), unsigned_of(source)
    items: list[Scalar] = []
    for row in x.reshape(-1, target.itemsize // source.itemsize):
        bits = b.constant(0, whole)
        for number, item in enumerate(row):
            wide = b.convert(b.bitcast(item, source, part), part, whole)
            place = b.constant(number * source.itemsize * 8, whole)
            bits = b.op("or", whole, bits, b.op("shl", whole, wide, place) if number else wide)
        items.append(b.bitcast(bits, whole, target))
    return as_scalars(items, x.shape[:-1])


def unsigned_of(dtype: DType) -> DType:
    return np.dtype(f"u{dtype.itemsize}")
