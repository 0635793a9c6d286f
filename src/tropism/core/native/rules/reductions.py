"""Reductions, scans and products of matrices, in XLA's order of summation."""

from collections.abc import Callable
from functools import partial, reduce
from itertools import accumulate
from typing import Any

import numpy as np

from tropism.core.native.builder import Builder, DType, Scalar, Unsupported
from tropism.core.native.rules.elementwise import BOOL, combine, dtype_of
from tropism.core.native.scalarize import Scalars, as_scalars, map_scalars, rule

OPERATIONS = {"reduce_sum": ("add", 0), "reduce_prod": ("mul", 1), "reduce_and": ("and", -1), "reduce_or": ("or", 0)}
SCANS = {"cumsum": ("add", 0), "cumprod": ("mul", 1), "cummax": ("max", None), "cummin": ("min", None)}


@rule(*OPERATIONS)
def reduction(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    (name, start), dtype = OPERATIONS[equation.primitive.name], dtype_of(equation)
    first = b.constant(1 if dtype == BOOL and start == -1 else start, dtype)
    return [_reduce_axes(x, equation.params["axes"], lambda row: reduce(partial(b.op, name, dtype), row, first))]


@rule("reduce_max", "reduce_min")
def reduce_extremum(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    name, dtype = equation.primitive.name.removeprefix("reduce_"), dtype_of(equation)
    return [_reduce_axes(x, equation.params["axes"], partial(reduce, partial(combine, b, name, dtype)))]


def _reduce_axes(x: Scalars, axes: tuple[int, ...], of: Callable[[Scalars], Scalar]) -> Scalars:
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    shape = tuple(x.shape[axis] for axis in kept)
    rows = x.transpose([*kept, *axes]).reshape(int(np.prod(shape)), -1)
    if not rows.shape[1]:
        raise Unsupported("reduce", "an empty axis")
    return as_scalars([of(row) for row in rows], shape)


@rule("argmax", "argmin")
def argument(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    """The first extremum; NaN counts as one."""
    direction, dtype = {"argmax": "gt", "argmin": "lt"}[equation.primitive.name], dtype_of(equation)
    index = np.dtype(equation.params["index_dtype"])
    if dtype == BOOL:
        raise Unsupported(equation.primitive.name, "booleans")

    def of(row: Scalars) -> Scalar:
        best, at = row[0], b.constant(0, index)
        for number, item in enumerate(row[1:], 1):
            better = b.compare(direction, dtype, item, best)
            if dtype.kind == "f":
                is_nan, was_number = b.compare("ne", dtype, item, item), b.compare("eq", dtype, best, best)
                better = b.op("and", BOOL, b.op("or", BOOL, better, is_nan), was_number)
            best = b.select(better, dtype, item, best)
            at = b.select(better, index, b.constant(number, index), at)
        return at

    return [_reduce_axes(x, equation.params["axes"], of)]


@rule(*SCANS)
def cumulative(b: Builder, equation: Any, x: Scalars) -> list[Scalars]:
    (name, start), dtype, axis = SCANS[equation.primitive.name], dtype_of(equation), equation.params["axis"]
    rows = list(np.moveaxis(x, axis, 0))
    rows = rows[::-1] if equation.params["reverse"] else rows
    apply = partial(combine, b, name, dtype)
    if start is not None:  # not a copy: 0 + -0.0 is 0
        first = as_scalars([b.constant(start, dtype)], ())
        rows[0] = map_scalars(apply, first, rows[0])
    results = list(accumulate(rows, partial(map_scalars, apply)))
    return [np.moveaxis(np.stack(results[::-1] if equation.params["reverse"] else results), 0, axis)]


@rule("dot_general")
def dot_general(b: Builder, equation: Any, x: Scalars, y: Scalars) -> list[Scalars]:
    (contract_x, contract_y), (batch_x, batch_y) = equation.params["dimension_numbers"]
    dtype = np.dtype(equation.outvars[0].aval.dtype)
    if any(np.dtype(var.aval.dtype) != dtype for var in equation.invars):
        raise Unsupported("dot_general", "operands of different types")
    rows, columns = _matrices(x, batch_x, contract_x), _matrices(y, batch_y, contract_y)
    items = [
        _dot(b, dtype, row, column)
        for batch_rows, batch_columns in zip(rows, columns, strict=True)
        for row in batch_rows
        for column in batch_columns
    ]
    return [as_scalars(items, equation.outvars[0].aval.shape)]


def _matrices(x: Scalars, batch: tuple[int, ...], contract: tuple[int, ...]) -> Scalars:
    """The array as (batch, free, contracted)."""
    free = [axis for axis in range(x.ndim) if axis not in (*batch, *contract)]
    sizes = [int(np.prod([x.shape[axis] for axis in axes])) for axes in (batch, free, contract)]
    return x.transpose([*batch, *free, *contract]).reshape(sizes)


def _dot(b: Builder, dtype: DType, row: Scalars, column: Scalars) -> Scalar:
    total = b.constant(0, dtype)
    for x, y in zip(row, column, strict=True):
        total = b.op("add", dtype, total, b.op("mul", dtype, x, y))
    return total
