"""Indexing at run time, through memory. No index leaves its array: indices are clamped, or dropped, as in JAX."""

import math
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from tropism.core.native.builder import INDEX, Builder, DType, Scalar, StridedView, Unsupported
from tropism.core.native.rules.elementwise import BOOL, combine, dtype_of
from tropism.core.native.scalarize import (
    Scalars,
    Value,
    as_scalars,
    load_all,
    memory_index,
    row_strides,
    rule,
    store_all,
)

COMBINE = {"scatter": None, "scatter-add": "add", "scatter-mul": "mul", "scatter-min": "min", "scatter-max": "max"}


@rule("dynamic_slice", reads_memory=True)
def dynamic_slice(b: Builder, equation: Any, x: Value, *starts: Value) -> list[Value]:
    """A view; nothing is loaded before an element is used."""
    memory = store_all(b, x, dtype_of(equation))
    sizes = equation.params["slice_sizes"]
    base = memory.base
    for size, whole, stride, start, var in zip(
        sizes, memory.shape, memory.strides, starts, equation.invars[1:], strict=True
    ):
        if whole > size:
            first = _clamp_index(b, load_all(b, start).item(), np.dtype(var.aval.dtype), whole - size)
            part = b.op("mul", INDEX, first, b.constant(stride, INDEX))
            base = part if base is None else b.op("add", INDEX, base, part)
    return [memory._replace(shape=tuple(sizes), base=base)]


def _clamp_index(b: Builder, index: Scalar, dtype: DType, last: int) -> Scalar:
    wide = b.convert(index, dtype, INDEX)
    if dtype.itemsize == 8 and dtype.kind == "u":
        raise Unsupported("index", "uint64 indices")
    return b.op("min", INDEX, b.op("max", INDEX, wide, b.constant(0, INDEX)), b.constant(last, INDEX))


@rule("dynamic_update_slice")
def dynamic_update_slice(b: Builder, equation: Any, x: Scalars, update: Scalars, *starts: Scalars) -> list[Value]:
    dtype = dtype_of(equation)
    memory = store_all(b, x, dtype)
    base = b.constant(0, INDEX)
    for axis, (start, var) in enumerate(zip(starts, equation.invars[2:], strict=True)):
        first = _clamp_index(b, start.item(), np.dtype(var.aval.dtype), x.shape[axis] - update.shape[axis])
        base = b.op("add", INDEX, base, b.op("mul", INDEX, first, b.constant(memory.strides[axis], INDEX)))
    for position in np.ndindex(update.shape):
        b.store(memory.pointer, dtype, memory_index(b, memory, position, base), update[position])
    return [load_all(b, memory)]


@rule("gather", reads_memory=True)
def gather(b: Builder, equation: Any, x: Value, indices: Value) -> list[Value]:
    params, dtype = equation.params, dtype_of(equation)
    numbers, mode = params["dimension_numbers"], params["mode"]
    if numbers.operand_batching_dims:
        raise Unsupported("gather", "batching dimensions")
    if mode == GatherScatterMode.ONE_HOT:
        raise Unsupported("gather", f"mode {mode}")
    memory = store_all(b, x, dtype)
    sizes, out_shape = params["slice_sizes"], equation.outvars[0].aval.shape
    window_axes = [axis for axis in range(len(sizes)) if axis not in numbers.collapsed_slice_dims]
    starts = _Starts(b, load_all(b, indices), np.dtype(equation.invars[1].aval.dtype), numbers.start_index_map)
    starts.limit(memory, sizes)
    batch_axes = [axis for axis in range(len(out_shape)) if axis not in numbers.offset_dims]
    filling = _filling(b, params["fill_value"], dtype) if mode == GatherScatterMode.FILL_OR_DROP else None
    items: list[Scalar] = []
    for position in np.ndindex(out_shape):
        window = [0] * len(sizes)
        for axis, place in zip(window_axes, numbers.offset_dims, strict=True):
            window[axis] = position[place]
        base, inside = starts.at(tuple(position[axis] for axis in batch_axes))
        value = b.load(memory.pointer, dtype, memory_index(b, memory, window, base))
        items.append(value if filling is None else b.select(inside, dtype, value, filling))
    return [as_scalars(items, out_shape)]


def _filling(b: Builder, value: Any, dtype: DType) -> Scalar:
    """JAX's default: NaN, the smallest signed, or the largest unsigned integer."""
    if value is None:
        defaults = {"f": np.nan, "b": True}
        value = defaults.get(dtype.kind)
        if value is None:
            value = np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max
    return b.constant(value, dtype)


class _Starts:
    """The corners of the windows that `gather` reads and `scatter` writes."""

    def __init__(self, b: Builder, indices: Scalars, dtype: DType, axes: tuple[int, ...]):
        if dtype.itemsize == 8 and dtype.kind == "u":
            raise Unsupported("index", "uint64 indices")
        self.b, self.indices, self.dtype, self.axes = b, indices, dtype, axes

    def limit(self, memory: StridedView, sizes: Any) -> None:
        self.strides = [memory.strides[axis] for axis in self.axes]
        self.last = [memory.shape[axis] - sizes[axis] for axis in self.axes]

    def at(self, position: tuple[int, ...]) -> tuple[Scalar, Scalar]:
        """The clamped offset of a corner, and whether it needed no clamping."""
        b, base, inside = self.b, self.b.constant(0, INDEX), self.b.constant(1, BOOL)
        for index, stride, last in zip(np.atleast_1d(self.indices[position]), self.strides, self.last, strict=True):
            wide, first = b.convert(index, self.dtype, INDEX), _clamp_index(b, index, self.dtype, last)
            inside = b.op("and", BOOL, inside, b.compare("eq", INDEX, wide, first))
            base = b.op("add", INDEX, base, b.op("mul", INDEX, first, b.constant(stride, INDEX)))
        return base, inside


@rule(*COMBINE)
def scatter(b: Builder, equation: Any, x: Scalars, indices: Scalars, updates: Scalars) -> list[Value]:
    """Updates outside the array are stored in a spare element behind it, or clamped if the mode says so."""
    params, dtype = equation.params, dtype_of(equation)
    numbers, mode = params["dimension_numbers"], params["mode"]
    if numbers.operand_batching_dims:
        raise Unsupported("scatter", "batching dimensions")
    memory = store_all(b, x, dtype, spare=1)
    spare = b.constant(math.prod(x.shape), INDEX)
    b.store(memory.pointer, dtype, spare, b.constant(0, dtype))
    window_axes = [axis for axis in range(x.ndim) if axis not in numbers.inserted_window_dims]
    sizes = [1] * x.ndim
    for axis, place in zip(window_axes, numbers.update_window_dims, strict=True):
        sizes[axis] = updates.shape[place]
    axes = numbers.scatter_dims_to_operand_dims
    starts = _Starts(b, indices, np.dtype(equation.invars[1].aval.dtype), axes)
    starts.limit(memory, sizes)
    batch_axes = [axis for axis in range(updates.ndim) if axis not in numbers.update_window_dims]
    for position in np.ndindex(updates.shape):
        window = [0] * x.ndim
        for axis, place in zip(window_axes, numbers.update_window_dims, strict=True):
            window[axis] = position[place]
        base, inside = starts.at(tuple(position[axis] for axis in batch_axes))
        index = memory_index(b, memory, window, base)
        if mode != GatherScatterMode.CLIP:
            index = b.select(inside, INDEX, index, spare)
        _combine(b, COMBINE[equation.primitive.name], memory, index, updates[position])
    return [load_all(b, memory._replace(strides=row_strides(x.shape)))]


def _combine(b: Builder, name: str | None, memory: StridedView, index: Scalar, value: Scalar) -> None:
    if name is not None:
        old = b.load(memory.pointer, memory.dtype, index)
        value = combine(b, name, memory.dtype, old, value)
    b.store(memory.pointer, memory.dtype, index, value)
