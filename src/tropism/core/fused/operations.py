"""Evaluates the nodes of a graph with JAX: scalars outside a kernel, vectors of lanes inside."""

from collections.abc import Callable, Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tropism.core.fused.graph import Node, constant_value
from tropism.core.native.builder import DType

WORD = np.dtype(np.uint32)


def _larger(x: Any, y: Any) -> Any:
    """Triton's maximum drops NaN."""
    return lax.select((x > y) | (x != x), x, y) if x.dtype.kind == "f" else lax.max(x, y)


def _smaller(x: Any, y: Any) -> Any:
    return lax.select((x < y) | (x != x), x, y) if x.dtype.kind == "f" else lax.min(x, y)


def _round_even(x: Any) -> Any:
    """To the nearest whole number, to the even one of two; larger floats are whole numbers already."""
    whole = lax.floor(x)
    rest, is_odd = x - whole, lax.floor(whole * 0.5) * 2 != whole
    return lax.select((rest > 0.5) | ((rest == 0.5) & is_odd), whole + 1, whole)


def _round_away(x: Any) -> Any:
    size = lax.abs(x)
    whole = lax.floor(size)
    return _copysign(lax.select(size - whole >= 0.5, whole + 1, whole), x)


def _copysign(x: Any, y: Any) -> Any:
    sign = np.uint32(0x80000000)
    bits, other = lax.bitcast_convert_type(x, jnp.uint32), lax.bitcast_convert_type(y, jnp.uint32)
    return lax.bitcast_convert_type((bits & ~sign) | (other & sign), jnp.float32)


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(lax, name) for name in ("add", "sub", "mul", "div", "rem", "neg", "abs", "clz", "pow", "atan2")},
    **{name: getattr(lax, name) for name in ("floor", "ceil", "sqrt", "sin", "cos", "tan", "cbrt", "select")},
    **{name: getattr(lax, name) for name in ("exp", "log", "log1p", "tanh", "erf_inv", "logistic", "expm1")},
    **{name: getattr(lax, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: getattr(lax, f"bitwise_{name}") for name in ("and", "or", "xor")},
    "max": _larger,
    "min": _smaller,
    "shl": lax.shift_left,
    "lshr": lax.shift_right_logical,
    "ashr": lax.shift_right_arithmetic,
    "popcount": lax.population_count,
    "round_even": _round_even,
    "round_away": _round_away,
    "copysign": _copysign,
    "fma": lambda x, y, z: x * y + z,
}


def evaluate_nodes(nodes: Iterable[Node], values: dict[Node, Any], arrays: dict[int, Any]) -> None:
    """Add the values of these nodes, in order, to `values`, which has those of the inputs; arrays are flat."""
    for node in nodes:
        if node not in values:
            values[node] = _evaluate(node, [values[operand] for operand in node.operands], arrays)


def _evaluate(node: Node, operands: list[Any], arrays: dict[int, Any]) -> Any:
    if node.name == "constant":
        return constant_value(node)
    if node.name == "load":
        loaded = arrays[node.detail][operands[0]]
        return loaded != 0 if node.dtype.kind == "b" else loaded
    if node.name == "convert":
        return lax.convert_element_type(operands[0], node.dtype)
    if node.name == "bitcast":
        return lax.bitcast_convert_type(operands[0], node.dtype)
    shape = np.broadcast_shapes(*(np.shape(operand) for operand in operands))
    return OPERATIONS[node.name](*(broadcast(operand, shape) for operand in operands))


def broadcast(value: Any, shape: tuple[int, ...]) -> Any:
    return value if np.shape(value) == shape else lax.broadcast(value, shape)


def to_word(value: Any) -> Any:
    """A value of at most 32 bits as a word."""
    if value.dtype.itemsize == 4:
        return value if value.dtype == WORD else lax.bitcast_convert_type(value, jnp.uint32)
    wide = lax.convert_element_type(value, jnp.int32)
    return lax.bitcast_convert_type(wide, jnp.uint32)


def from_word(word: Any, dtype: DType) -> Any:
    if dtype.itemsize == 4:
        return word if dtype == WORD else lax.bitcast_convert_type(word, dtype)
    if dtype.kind == "b":
        return word != np.uint32(0)
    return lax.convert_element_type(word, dtype)
