"""Primitives that only move elements; they emit no code."""

from typing import Any

import numpy as np

from tropism.core.native.builder import Builder, StridedView, Unsupported
from tropism.core.native.scalarize import Scalars, Value, constants, physical_shape, rule


@rule("stop_gradient", "copy", "optimization_barrier", "random_wrap", "random_unwrap")
def identity(b: Builder, equation: Any, *arrays: Scalars) -> list[Scalars]:
    if equation.primitive.name == "random_wrap" and equation.params["impl"].name != "threefry2x32":
        raise Unsupported(equation.primitive.name, "keys that are not threefry2x32")
    return list(arrays)


@rule("reshape")
def reshape(b: Builder, equation: Any, x: Scalars, *_: Any) -> list[Scalars]:
    return [x.reshape(equation.outvars[0].aval.shape)]


@rule("squeeze", reads_memory=True)
def squeeze(b: Builder, equation: Any, x: Value) -> list[Value]:
    dimensions = equation.params["dimensions"]
    if not isinstance(x, StridedView):
        return [np.squeeze(x, dimensions)]
    kept = [axis for axis in range(len(x.shape)) if axis not in dimensions]
    return [x._replace(shape=tuple(x.shape[i] for i in kept), strides=tuple(x.strides[i] for i in kept))]


@rule("slice", reads_memory=True)
def static_slice(b: Builder, equation: Any, x: Value) -> list[Value]:
    start, limit = equation.params["start_indices"], equation.params["limit_indices"]
    steps = equation.params["strides"] or (1,) * len(start)
    if isinstance(x, StridedView):
        return [
            x._replace(
                shape=tuple(equation.outvars[0].aval.shape),
                strides=tuple(stride * step for stride, step in zip(x.strides, steps, strict=True)),
                offset=x.offset + sum(first * stride for first, stride in zip(start, x.strides, strict=True)),
            )
        ]
    return [x[tuple(slice(*bounds) for bounds in zip(start, limit, steps, strict=True))]]


@rule("transpose")
def transpose(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    return [x.transpose(equation.params["permutation"])]


@rule("rev")
def rev(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    return [np.flip(x, equation.params["dimensions"])]


@rule("broadcast_in_dim")
def broadcast_in_dim(b: Builder, equation: Any, x: Scalars, *_: Any) -> list[Scalars]:
    shape, places = equation.params["shape"], equation.params["broadcast_dimensions"]
    aligned = [1] * len(shape)
    for axis, place in enumerate(places):
        aligned[place] = x.shape[axis]
    return [np.broadcast_to(x.reshape(aligned), shape)]


@rule("concatenate")
def concatenate(b: Builder, equation: Any, *arrays: Scalars) -> list[Scalars]:
    return [np.concatenate(arrays, axis=equation.params["dimension"])]


@rule("stack")
def stack(b: Builder, equation: Any, *arrays: Scalars) -> list[Scalars]:
    return [np.stack(arrays, axis=equation.params["axis"])]


@rule("unstack")
def unstack(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    axis, shape = equation.params["axis"], physical_shape(equation.outvars[0].aval)
    return [part.reshape(shape) for part in np.split(x, x.shape[axis], axis)]


@rule("split")
def split(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    return np.split(x, np.cumsum(equation.params["sizes"])[:-1], axis=equation.params["axis"])


@rule("pad")
def pad(b: Builder, equation: Any, x: Scalars, filling: Scalars) -> list[Scalars]:
    """A negative width removes elements at that end."""
    config = equation.params["padding_config"]
    spread = [size + max(size - 1, 0) * interior for size, (_, _, interior) in zip(x.shape, config, strict=True)]
    widths = [(max(low, 0), max(high, 0)) for low, high, _ in config]
    full = [low + size + high for size, (low, high) in zip(spread, widths, strict=True)]
    result = np.full(full, filling.item(), object)
    places = zip(spread, widths, config, strict=True)
    result[tuple(slice(low, low + size, interior + 1) for size, (low, _), (_, _, interior) in places)] = x
    return [
        result[
            tuple(slice(max(-low, 0), size - max(-high, 0)) for size, (low, high, _) in zip(full, config, strict=True))
        ]
    ]


@rule("iota")
def iota(b: Builder, equation: Any) -> list[Scalars]:
    shape, dimension = equation.params["shape"], equation.params["dimension"]
    return [constants(b, np.indices(shape)[dimension].astype(equation.params["dtype"]))]


@rule("iota_2x32_shape")
def iota_2x32_shape(b: Builder, equation: Any) -> list[Scalars]:
    """Each element's number as two words, for random bits."""
    shape = equation.params["shape"]
    numbers = np.arange(np.prod(shape, dtype=int), dtype=np.uint64).reshape(shape)
    return [constants(b, (numbers >> np.uint64(32)).astype(np.uint32)), constants(b, numbers.astype(np.uint32))]
