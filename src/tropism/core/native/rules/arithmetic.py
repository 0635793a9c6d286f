"""Sums, products and quotients; those of floats are rewritten as XLA does, where that changes bits."""

from functools import partial
from typing import Any

import numpy as np

from tropism.core.native.builder import Builder, DType, Origin, Scalar, Unsupported
from tropism.core.native.rules.elementwise import BOOL, divide_integers, dtype_of, elementwise
from tropism.core.native.rules.functions import emit_function
from tropism.core.native.scalarize import Scalars, map_scalars, rule

NAMES = {"add": "add", "add_any": "add", "sub": "sub", "mul": "mul", "div": "div"}


@rule(*NAMES)
def arithmetic(b: Builder, equation: Any, x: Scalars, y: Scalars) -> list[Scalars]:
    name, dtype = NAMES[equation.primitive.name], dtype_of(equation)
    if dtype == BOOL:
        raise Unsupported(name, "booleans")
    if dtype.kind == "f":
        algebra = Algebra(b, dtype)
        if name == "div" or (algebra.is_uniform(x) and algebra.is_uniform(y)):
            return [map_scalars(getattr(algebra, name), x, y)]
    of = partial(divide_integers, b) if dtype.kind != "f" and name == "div" else b.op
    return elementwise(equation, partial(of, name), x, y)


@rule("integer_pow")
def integer_pow(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    exponent, dtype = equation.params["y"], dtype_of(equation)
    multiply = Algebra(b, dtype).mul if dtype.kind == "f" else partial(b.op, "mul", dtype)

    def power(item: Scalar) -> Scalar:
        one = b.constant(1, dtype)
        result, remaining = None, abs(exponent)
        while remaining:
            if remaining & 1:
                result = item if result is None else multiply(result, item)
            remaining >>= 1
            item = multiply(item, item) if remaining else item
        result = one if result is None else result
        return b.op("div", dtype, one, result) if exponent < 0 else result

    if exponent < 0 and dtype.kind != "f":
        raise Unsupported("integer_pow", "a negative power of an integer")
    return [map_scalars(power, x)]


@rule("square")
def square(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    dtype = dtype_of(equation)
    multiply = Algebra(b, dtype).mul if dtype.kind == "f" else partial(b.op, "mul", dtype)
    return [map_scalars(lambda item: multiply(item, item), x)]


class Algebra:
    """Operations of a program's floats, with the rewrites of XLA's algebraic simplifier."""

    def __init__(self, b: Builder, dtype: DType):
        self.b, self.dtype = b, dtype

    def add(self, x: Scalar, y: Scalar) -> Scalar:
        """(x + c) + d is x + (c + d)."""
        if self._value(x) is not None:
            x, y = y, x
        term = self._value(y)
        if term is not None and (inner := self._match("add", x)) and (other := self._value(inner[1])) is not None:
            return self.add(inner[0], self._constant(other + term))
        return self._emit("add", x, y)

    def sub(self, x: Scalar, y: Scalar) -> Scalar:
        term = self._value(y)
        return self._emit("sub", x, y) if term is None else self.add(x, self._constant(-term))

    def mul(self, x: Scalar, y: Scalar) -> Scalar:
        """(x · c) · d is x · (c · d), and exp(x) · exp(y) is exp(x + y)."""
        if self._value(x) is not None:
            x, y = y, x
        factor = self._value(y)
        if factor is not None and (inner := self._match("mul", x)) and (other := self._value(inner[1])) is not None:
            return self.mul(inner[0], self._constant(other * factor))
        powers = self._match("exp", x), self._match("exp", y)
        if powers[0] and powers[1]:
            return self._function("exp", self.add(*powers[0], *powers[1]))
        return self._emit("mul", x, y)

    def div(self, x: Scalar, y: Scalar) -> Scalar:
        """Divisions by constants and exponentials are products; one of two quotients is a product."""
        upper, lower = self._match("exp", x), self._match("exp", y)
        if lower:
            if upper:
                return self._function("exp", self.sub(*upper, *lower))
            return self.mul(x, self._function("exp", self.b.op("neg", self.dtype, *lower)))
        divisor = self._value(y)
        if divisor is not None and self._value(x) is None:
            with np.errstate(divide="ignore"):
                return self.mul(x, self._constant(self.dtype.type(1) / divisor))
        upper, lower = self._match("div", x), self._match("div", y)
        if upper and lower:
            return self.div(self.mul(upper[0], lower[1]), self.mul(upper[1], lower[0]))
        if upper:
            return self.div(upper[0], self.mul(upper[1], y))
        if lower:
            return self.div(self.mul(x, lower[1]), lower[0])
        return self._emit("div", x, y)

    def is_uniform(self, x: Scalars) -> bool:
        """Whether the constants in an array are equal; XLA does not combine different ones with others."""
        first = x.flat[0] if x.size else None
        return all(item == first or self._value(item) is None for item in x.flat)

    def _emit(self, name: str, *operands: Scalar) -> Scalar:
        return self._with_origin(name, operands, self.b.op(name, self.dtype, *operands))

    def _function(self, name: str, x: Scalar) -> Scalar:
        return self._with_origin(name, (x,), emit_function(self.b, name, self.dtype, x))

    def _with_origin(self, name: str, operands: tuple[Scalar, ...], result: Scalar) -> Scalar:
        self.b.origins[result] = Origin(name, operands)
        return result

    def _match(self, name: str, x: Scalar) -> tuple[Scalar, ...]:
        """The operands of the operation that computed `x`, if it has this name."""
        origin = self.b.origins.get(x)
        return origin.operands if origin is not None and origin.name == name else ()

    def _value(self, x: Scalar) -> Any:
        """The value of a constant, otherwise None."""
        return next(iter(self._match("constant", x)), None)

    def _constant(self, value: Any) -> Scalar:
        value = self.dtype.type(value)
        return self._with_origin("constant", (value,), self.b.constant(value, self.dtype))
