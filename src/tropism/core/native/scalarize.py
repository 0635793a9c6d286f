"""Turns a jaxpr into scalar operations: every element of an array is one scalar, so shapes disappear."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from numpy.typing import NDArray

from tropism.core.native.builder import INDEX, Builder, DType, Origin, Scalar, StridedView, Unsupported

MAX_ELEMENTS = 16_384  # of one array

Scalars = NDArray[Any]  # an object array of scalars, with the shape of the traced array
Value = Scalars | StridedView
Rule = Callable[..., Sequence[Value]]  # (builder, equation, *inputs) -> outputs

RULES: dict[str, Rule] = {}
READS_MEMORY: set[str] = set()  # primitives whose rules accept a StridedView


def rule(*primitives: str, reads_memory: bool = False) -> Callable[[Rule], Rule]:
    """Register the rule of these primitives."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(primitives, function))
        if reads_memory:
            READS_MEMORY.update(primitives)
        return function

    return register


def evaluate(b: Builder, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Value]) -> list[Value]:
    """Emit the equations of a jaxpr that its outputs depend on."""
    values: dict[Any, Value] = dict(zip(jaxpr.invars, inputs, strict=True))
    values.update((var, constants(b, const)) for var, const in zip(jaxpr.constvars, consts, strict=True))

    def read(atom: Any) -> Value:
        return constants(b, atom.val, physical_dtype(atom.aval)) if isinstance(atom, Literal) else values[atom]

    for equation in _live_equations(jaxpr):
        values.update(zip(equation.outvars, _apply(b, equation, [read(x) for x in equation.invars]), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _live_equations(jaxpr: Any) -> list[Any]:
    live = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
    kept: list[Any] = []
    for equation in reversed(jaxpr.eqns):
        if equation.effects:
            raise Unsupported(equation.primitive.name, "it has side effects")
        if any(var in live for var in equation.outvars):
            kept.append(equation)
            live.update(atom for atom in equation.invars if not isinstance(atom, Literal))
    return kept[::-1]


def live_inputs(jaxpr: Any) -> list[bool]:
    """Whether the outputs depend on each input."""
    atoms = [*jaxpr.outvars, *(atom for equation in _live_equations(jaxpr) for atom in equation.invars)]
    live = {atom for atom in atoms if not isinstance(atom, Literal)}
    return [var in live for var in jaxpr.invars]


def _apply(b: Builder, equation: Any, inputs: list[Value]) -> Sequence[Value]:
    name = equation.primitive.name
    if name not in RULES:
        raise Unsupported(name, "it has no rule")
    if name not in READS_MEMORY:
        inputs = [load_all(b, value) for value in inputs]
    outputs = RULES[name](b, equation, *inputs)
    for var, value in zip(equation.outvars, outputs, strict=True):
        if value.shape != physical_shape(var.aval):
            raise Unsupported(name, f"its rule gave shape {value.shape} instead of {physical_shape(var.aval)}")
    return outputs


def trace_into(b: Builder, function: Callable[..., Any], avals: Sequence[Any], inputs: Sequence[Value]) -> list[Value]:
    """Emit what a JAX function computes."""
    structs = [jax.ShapeDtypeStruct(physical_shape(aval), physical_dtype(aval)) for aval in avals]
    closed = jax.make_jaxpr(function)(*structs)
    return evaluate(b, closed.jaxpr, closed.consts, inputs)


def is_key(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)


def physical_shape(aval: Any) -> tuple[int, ...]:
    """A key is an array of its two words."""
    return (*aval.shape, 2) if is_key(aval) else tuple(aval.shape)


def physical_dtype(aval: Any) -> DType:
    return np.dtype(np.uint32) if is_key(aval) else np.dtype(aval.dtype)


def constants(b: Builder, value: Any, dtype: Any = None) -> Scalars:
    if isinstance(value, jax.Array) and is_key(value):
        value, dtype = jax.random.key_data(value), None
    array = np.asarray(value, dtype)
    _check_size(array.size)
    items = array.reshape(-1)
    scalars = [b.constant(item, array.dtype) for item in items]
    if array.dtype.kind == "f":
        b.origins.update((scalar, Origin("constant", (item,))) for scalar, item in zip(scalars, items, strict=True))
    return as_scalars(scalars, array.shape)


def as_scalars(items: Sequence[Scalar], shape: tuple[int, ...]) -> Scalars:
    result = np.empty(len(items), object)
    result[:] = items
    return result.reshape(shape)


def map_scalars(function: Callable[..., Scalar], *arrays: Scalars) -> Scalars:
    """Apply a function to each element, with NumPy's broadcasting."""
    result = np.frompyfunc(function, len(arrays), 1)(*arrays)
    return result if isinstance(result, np.ndarray) else as_scalars([result], ())


def row_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def memory_index(b: Builder, memory: StridedView, position: Sequence[int], extra: Scalar | None = None) -> Scalar:
    """The index of an element, at a position known now plus an offset computed at run time."""
    index = b.constant(memory.offset + sum(i * s for i, s in zip(position, memory.strides, strict=True)), INDEX)
    for part in (memory.base, extra):
        index = index if part is None else b.op("add", INDEX, part, index)
    return index


def load_all(b: Builder, value: Value) -> Scalars:
    """The elements of an array as scalars."""
    if not isinstance(value, StridedView):
        return value
    _check_size(math.prod(value.shape))
    items = [b.load(value.pointer, value.dtype, memory_index(b, value, at)) for at in np.ndindex(value.shape)]
    return as_scalars(items, value.shape)


def store_all(b: Builder, value: Value, dtype: DType, spare: int = 0) -> StridedView:
    """The array in memory, so that it can be indexed at run time; `spare` elements follow it."""
    if isinstance(value, StridedView):
        return value
    pointer = b.allocate(dtype, value.size + spare)
    for index, item in enumerate(value.reshape(-1)):
        b.store(pointer, dtype, b.constant(index, INDEX), item)
    return StridedView(pointer, dtype, value.shape, row_strides(value.shape))


def _check_size(items: int) -> None:
    if items > MAX_ELEMENTS:
        raise Unsupported("array", f"{items:,} elements are more than {MAX_ELEMENTS:,}")
