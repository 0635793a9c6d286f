"""Native loops over the environments of a batch, called lanes: the function of one lane, for each in turn."""

import ctypes
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from numpy.typing import NDArray

from tropism.core.native.builder import INDEX, Scalar, StridedView, Unsupported
from tropism.core.native.llvm import BLOCK, LANE, LlvmBuilder
from tropism.core.native.program import ADDRESS
from tropism.core.native.scalarize import (
    Value,
    as_scalars,
    evaluate,
    load_all,
    memory_index,
    physical_dtype,
    physical_shape,
    row_strides,
)
from tropism.core.spaces.space import check_count

LANE_NUMBER = -1  # in place of a position: the number of the lane
LARGEST_LOADED = 512  # elements; larger arrays are read where they are
WORD = np.dtype(np.uint32)
WORK_PER_THREAD = 2_000_000  # instructions; with less, waking a thread costs more than it saves


class LaneTable:
    """Addresses of the arrays that loops read and write, with the bytes from one step to the next."""

    def __init__(self, size: int):
        self.entries = np.zeros((size, 2), np.int64)
        self.address: int = self.entries.ctypes.data
        self._arrays: dict[int, NDArray[Any]] = {}  # kept alive

    def set(self, position: int, array: NDArray[Any], offset: int = 0, stride: int = 0) -> None:
        """Entry `position` is `offset` bytes into the array, and `stride` bytes further at each step."""
        self.entries[position] = array.ctypes.data + offset, stride
        self._arrays[position] = array


def number_leaves(*trees: Any) -> Any:
    """The trees with the positions of their leaves in a table."""
    leaves, structure = jax.tree.flatten(trees)
    return structure.unflatten(range(len(leaves)))


class LaneLoop:
    """Emits a function of one lane.

    `structs` are its arguments; `sources` and `targets` have the positions of the leaves of arguments and results in
    the table. Positions in `shared` have no lanes and are never written. With a mask, only its lanes run. With
    `for_batch`, random bits are the lane's part of one draw for all lanes.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        structs: Sequence[Any],
        sources: Sequence[Any],
        targets: Any,
        shared: Sequence[int],
        mask: int | None = None,
        for_batch: bool = False,
    ):
        closed = jax.make_jaxpr(function)(*structs)
        if any(isinstance(const, Tracer) for const in closed.consts):
            raise Unsupported("function", "it closes over values that are traced")
        sources, targets = jax.tree.leaves(sources), jax.tree.leaves(targets)
        self.text = ADDRESS.sub("", str(closed))
        self.builder = b = LlvmBuilder()
        b.batch_lane = self._number() if for_batch else None
        self._pointers: dict[int, Scalar] = {}
        self._shared = shared
        inputs = [self._input(var.aval, position) for var, position in zip(closed.jaxpr.invars, sources, strict=True)]
        results = [load_all(b, result) for result in evaluate(b, closed.jaxpr, closed.consts, inputs)]
        for target, result, var in zip(targets, results, closed.jaxpr.outvars, strict=True):
            view = self._view(var.aval, target)
            for at in np.ndindex(view.shape):
                b.store(view.pointer, view.dtype, memory_index(b, view, at), result[at])
        self.mask = None if mask is None else self._pointer(mask)

    def _pointer(self, position: int) -> Scalar:
        if position not in self._pointers:
            self._pointers[position] = self.builder.load_lane_pointer(position, position in self._shared)
        return self._pointers[position]

    def _view(self, aval: Any, position: int) -> StridedView:
        shape, b = physical_shape(aval), self.builder
        items = math.prod(shape)
        base = None if position in self._shared else LANE
        if base is not None and items != 1:
            base = b.op("mul", INDEX, base, b.constant(items, INDEX))
        return StridedView(self._pointer(position), physical_dtype(aval), shape, row_strides(shape), 0, base)

    def _number(self) -> Scalar:
        return self.builder.convert(LANE, INDEX, WORD)

    def _input(self, aval: Any, position: int) -> Value:
        if position == LANE_NUMBER:
            return as_scalars([self._number()], ())
        view = self._view(aval, position)
        return load_all(self.builder, view) if math.prod(view.shape) <= LARGEST_LOADED else view


def check_threads(num_threads: Any) -> int:
    return os.cpu_count() or 1 if num_threads is None else check_count("num_threads", num_threads)


def bind_lanes(
    loop: Callable[..., None], table: LaneTable, lanes: range, steps: int, cost: int, threads: int
) -> Callable[[], None]:
    """A function that runs a loop of about `cost` instructions per lane and step, on several threads if that pays."""
    threads = max(1, min(threads, len(lanes) * steps * cost // WORK_PER_THREAD, -(-len(lanes) // BLOCK)))
    share = -(-len(lanes) // (threads * BLOCK)) * BLOCK
    address, count = ctypes.c_void_p(table.address), ctypes.c_ssize_t  # converted once, not at each call
    own, *others = [
        partial(loop, address, count(first), count(min(first + share, lanes.stop)), count(steps))
        for first in range(lanes.start, lanes.stop, share)
    ]
    return partial(_run_all, own, others) if others else own


def _run_all(own: Callable[[], None], others: Sequence[Callable[[], None]]) -> None:
    futures = [_pool().submit(run) for run in others]
    own()
    for future in futures:
        future.result()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "tropism-lanes")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads
