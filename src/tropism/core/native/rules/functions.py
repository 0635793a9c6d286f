"""Elementary functions of float32 with XLA's own polynomials, in XLA's order of operations.

Which product a fused multiply-add absorbs depends on that order, and so do the last bits.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tropism.core.native.builder import Builder, DType, Origin, Scalar, Unsupported
from tropism.core.native.rules.elementwise import dtype_of, elementwise
from tropism.core.native.scalarize import Scalars, rule

FLOAT = np.dtype(np.float32)
INT = np.dtype(np.int32)

SAME = {name: name for name in ("sin", "cos", "tan", "sqrt", "pow", "atan2", "cbrt")}
SQRT_HALF = 0.707106769
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194442e-4
EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
LOG = (
    (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1),
    (-1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1),
    (2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
LOG1P_BELOW = 0.41421356237
LOG1P_UPPER = (0x383DE04B, 0x3EFF40C5, 0x40D284FA, 0x41EF4B9C, 0x4273CC76, 0x426473AD, 0x41A05101)
LOG1P_LOWER = (0x3F800000, 0x417101AD, 0x42A6185B, 0x435DC32D, 0x439A8CA3, 0x43586D8A, 0x42707982)
TANH_LIMIT = 0x40FFF644
TANH_UPPER = (0xA59F25C0, 0x2A61337E, 0xAEBD37FF, 0x335C0041, 0x3779434A, 0x3A270DED, 0x3BA059DC)
TANH_LOWER = (0x35A0D3D8, 0x38F895D6, 0x3B14AA05, 0x3BA059DD)
ERF_INV = (  # in the centre and in the tails
    (0x32F16588, 0xB951F09B),
    (0x34B84B36, 0x38D3B56B),
    (0xB66C7357, 0x3AB0DC72),
    (0xB6935AC1, 0xBB70BDE7),
    (0x396532DB, 0x3BBC127B),
    (0xBAA45408, 0xBBF9C5D7),
    (0xBB88E4EF, 0x3C1AA57E),
    (0x3E7C8F63, 0x3F8036DB),
    (0x3FC02E2F, 0x40354F7E),
)


class Float:
    """A float32 scalar with operators, so that polynomials read like formulas."""

    def __init__(self, b: Builder, scalar: Scalar):
        self.b = b
        self.scalar = scalar

    def of(self, value: "Float | float") -> "Float":
        return value if isinstance(value, Float) else Float(self.b, self.b.constant(value, FLOAT))

    def op(self, name: str, *others: "Float | float") -> "Float":
        return Float(self.b, self.b.op(name, FLOAT, self.scalar, *(self.of(other).scalar for other in others)))

    def __add__(self, other: "Float | float") -> "Float":
        return self.op("add", other)

    def __sub__(self, other: "Float | float") -> "Float":
        return self.op("sub", other)

    def __mul__(self, other: "Float | float") -> "Float":
        return self.op("mul", other)

    def __truediv__(self, other: "Float | float") -> "Float":
        return self.op("div", other)

    def __neg__(self) -> "Float":
        return self.op("neg")

    def __lt__(self, other: "Float | float") -> Scalar:
        return self.b.compare("lt", FLOAT, self.scalar, self.of(other).scalar)

    def __gt__(self, other: "Float | float") -> Scalar:
        return self.b.compare("gt", FLOAT, self.scalar, self.of(other).scalar)

    def is_equal(self, other: "Float | float") -> Scalar:
        return self.b.compare("eq", FLOAT, self.scalar, self.of(other).scalar)

    def where(self, condition: Scalar, other: "Float | float") -> "Float":
        """This value where the condition is true, else the other."""
        return Float(self.b, self.b.select(condition, FLOAT, self.scalar, self.of(other).scalar))

    def clamp(self, low: float, high: float) -> "Float":
        """NaN is kept."""
        raised = self.of(low).where(self < low, self)
        return self.of(high).where(raised > high, raised)

    def bits(self) -> Scalar:
        return self.b.bitcast(self.scalar, FLOAT, INT)


def from_bits(b: Builder, bits: Scalar) -> Float:
    return Float(b, b.bitcast(bits, INT, FLOAT))


def to_float(bits: int) -> float:
    return float(np.uint32(bits).view(np.float32))


def horner(x: Float, coefficients: Sequence[int]) -> Float:
    """A polynomial from its highest coefficient on, given as the bits of floats."""
    result = x * to_float(coefficients[0]) + to_float(coefficients[1])
    for coefficient in coefficients[2:]:
        result = x * result + to_float(coefficient)
    return result


def exp(x: Float) -> Float:
    b = x.b
    x = x.clamp(-87.8, 88.8)
    whole = (x * 1.44269504).op("add", 0.5).op("floor").clamp(-127.0, 127.0)
    x = x - whole * LN2_HIGH
    x = x - whole * LN2_LOW
    series = x * EXP[0] + EXP[1]
    for coefficient in EXP[2:]:
        series = series * x + coefficient
    result = (x + series * (x * x)) + 1.0
    exponent = b.op("add", INT, b.convert(whole.scalar, FLOAT, INT), b.constant(127, INT))
    return result * from_bits(b, b.op("shl", INT, exponent, b.constant(23, INT)))


def log(x: Float) -> Float:
    b, tiny = x.b, to_float(0x00800000)
    bits = x.where(x > tiny, tiny).bits()
    exponent = b.op("sub", INT, b.op("lshr", INT, bits, b.constant(23, INT)), b.constant(127, INT))
    mantissa_bits = b.op("and", INT, bits, b.constant(-0x7F800001, INT))
    mantissa = from_bits(b, b.op("or", INT, mantissa_bits, b.constant(0x3F000000, INT)))
    is_small = mantissa < SQRT_HALF
    scale = (Float(b, b.convert(exponent, INT, FLOAT)) + 1.0) - x.of(1.0).where(is_small, 0.0)
    m = (mantissa - 1.0) + mantissa.where(is_small, 0.0)
    squared = m * m
    cubed = squared * m
    first, second, third = ((m * high + middle) * m + low for high, middle, low in LOG)
    series = (third + (second + first * cubed) * cubed) * cubed
    series = series + scale * LN2_LOW
    result = ((m - squared * 0.5) + series) + scale * LN2_HIGH
    negative = from_bits(b, b.constant(-1, INT)).where(x < 0.0, result)
    negative = x.where(b.compare("ne", FLOAT, x.scalar, x.scalar), negative)
    return x.of(-np.inf).where(x.is_equal(0.0), x.of(np.inf).where(x.is_equal(np.inf), negative))


def log1p(x: Float) -> Float:
    squared, vanishing = x * x, x * 0.0
    lower = vanishing + to_float(LOG1P_LOWER[0])
    for coefficient in LOG1P_LOWER[1:]:
        lower = lower * x + to_float(coefficient)
    upper = vanishing + to_float(LOG1P_UPPER[0])
    for coefficient in LOG1P_UPPER[1:]:
        upper = upper * x + to_float(coefficient)
    # Explicit, because LLVM would turn the product into one with 0.5, and fuse the other one.
    near = x + squared.op("fma", -0.5, (x * squared) * (upper / lower))
    return near.where(x.op("abs") < LOG1P_BELOW, log(x + 1.0))


def tanh(x: Float) -> Float:
    limit = to_float(TANH_LIMIT)
    clamped = x.clamp(-limit, limit)
    squared = clamped * clamped
    ratio = (clamped * horner(squared, TANH_UPPER)) / horner(squared, TANH_LOWER)
    size = x.op("abs")
    near = x.where(size < 0.0004, ratio)
    return near.where(size < 20.0, x.of(1.0).op("copysign", x)).where(x.b.compare("eq", FLOAT, x.scalar, x.scalar), x)


def erf_inv(x: Float) -> Float:
    log_term = log1p(x * -x)
    is_centre = log_term > -5.0
    w = (x.of(-2.5) - log_term).where(is_centre, (-log_term).op("sqrt") + -3.0)
    first, *rest = (x.of(to_float(centre)).where(is_centre, to_float(tail)) for centre, tail in ERF_INV)
    series = first
    for coefficient in rest:
        series = coefficient + w * series
    return x * x.of(np.inf).where(x.op("abs").is_equal(1.0), series)


def logistic(x: Float) -> Float:
    return x.of(1.0) / (exp(-x) + 1.0)


def expm1(x: Float) -> Float:
    half = x * 0.5
    power = exp(x)
    near = tanh(half) * (power + 1.0)
    result = (power + -1.0).where(x.op("abs") > 0.5, near)
    return x.where(half.is_equal(0.0), result)


FORMULAS: dict[str, Callable[[Float], Float]] = {
    function.__name__: function for function in (exp, log, log1p, tanh, erf_inv, logistic, expm1)
}


@rule(*FORMULAS)
def formula(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    name = equation.primitive.name
    if dtype_of(equation) != FLOAT:
        raise Unsupported(name, f"it is native for float32 only, not for {dtype_of(equation).name}")
    return elementwise(equation, lambda dtype, item: emit_function(b, name, dtype, item), x)


def emit_function(b: Builder, name: str, dtype: DType, x: Scalar) -> Scalar:
    result = b.op(name, dtype, x) if name in b.functions else FORMULAS[name](Float(b, x)).scalar
    b.origins[result] = Origin(name, (x,))
    return result


@rule(*SAME)
def library_function(b: Builder, equation: Any, *arrays: Scalars) -> list[Scalars]:
    name = equation.primitive.name
    if any(np.dtype(var.aval.dtype) != dtype_of(equation) for var in equation.invars):
        raise Unsupported(name, "operands of different types")

    def of(dtype: DType, *items: Scalar) -> Scalar:
        result = b.op(name, dtype, *items)
        b.origins[result] = Origin(name, items)
        return result

    return elementwise(equation, of, *arrays)
