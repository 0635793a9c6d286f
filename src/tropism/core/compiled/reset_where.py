"""reset_where: replaces the finished members of a batch, and computes replacements only for those."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool

from tropism.core.compiled.cost import estimate, member_shape
from tropism.core.compiled.packing import compute_at_once

# "finished" gathers the finished members and replaces only those; "select" computes a replacement for every
# member and discards the unneeded ones, as every method does under `grad`; "auto" chooses.
Restarts = Literal["auto", "finished", "select"]

# Measured on two CPU cores with CartPole: smaller batches are faster with a select.
SMALLEST_GATHERED_BATCH = 128
# Measured on an H200: a loop over the finished members takes as long as about this many operations. On the CPU it
# takes less than any reset.
LOOP_OPERATIONS = 1e9
SMALLEST_CHUNK = 64
LARGEST_PACKED = 1024  # words
CHUNKS_PER_BATCH = 64


def reset_where(
    make_new: Callable[[Any], Any],
    done: Any,
    source: Any,
    value: Any,
    restarts: Restarts = "auto",
    chunk: int | None = None,
) -> Any:
    """`value`, or `make_new(source)` where `done`.

    Without `vmap` it is a conditional. Under `vmap` its cost is proportional to the number of finished
    members; the result equals a select for any chunk. Derivatives are those of a select. `make_new` must not close
    over traced values: pass them in `source`.
    """
    if restarts == "select":
        return select(done, make_new(source), value)
    if not isinstance(done, Tracer):  # a plain call: a conditional would be recompiled every time
        return make_new(source) if done else value

    @custom_vmap
    def replace(done: Any, source: Any, value: Any) -> Any:
        return lax.cond(done, lambda: make_new(source), lambda: value)

    @replace.def_vmap
    def replace_batch(size: int, batched: Any, done: Any, source: Any, value: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        value = _broadcast(size, value, batched[2])
        out_batched = jax.tree.map(lambda _: True, value)
        done = done if batched[0] else jnp.broadcast_to(done, (size,))
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, batched[1])
        batch = _Batch(make_new, axes, size, chunk or max(SMALLEST_CHUNK, size // CHUNKS_PER_BATCH))
        if restarts == "auto" and not batch.is_heavy(source):
            if size < SMALLEST_GATHERED_BATCH:
                return batch.select(done, source, value), out_batched
            return lax.platform_dependent(done, source, value, cpu=batch.gather, default=batch.select), out_batched
        return batch.gather(done, source, value), out_batched

    @jax.custom_jvp
    def differentiable(done: Any, source: Any, value: Any) -> Any:
        return replace(done, source, value)

    @differentiable.defjvp
    def derivative(primals: Any, tangents: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        return jax.jvp(lambda done, source, value: select(done, make_new(source), value), primals, tangents)

    return differentiable(done, source, value)


class _Batch:
    """The two ways to replace the finished members of a batch."""

    def __init__(self, make_new: Callable[[Any], Any], axes: Any, size: int, chunk: int):
        self.make_new = make_new
        self.axes = axes
        self.size = size
        self.chunk = chunk

    def is_heavy(self, source: Any) -> bool:
        """Whether a replacement for every member costs more than a loop, wherever it runs."""
        shapes = jax.tree.map(lambda leaf, axis: leaf if axis is None else member_shape(leaf), source, self.axes)
        return self.size * estimate(self.make_new, shapes).operations > LOOP_OPERATIONS

    def select(self, done: Bool[Array, " batch"], source: Any, value: Any) -> Any:
        replacement = jax.vmap(self.make_new, in_axes=(self.axes,), axis_size=self.size)(source)
        return select(done, replacement, value)

    def gather(self, done: Bool[Array, " batch"], source: Any, value: Any) -> Any:
        finished, count = self._finished_indices(done)

        def make_new(source: Any) -> Any:
            return compute_at_once(self.make_new(source), LARGEST_PACKED)

        def replace_chunk(carry: Any) -> Any:
            start, value = carry
            members = lax.dynamic_slice(finished, (start,), (self.chunk,))
            chosen = jax.tree.map(lambda leaf, axis: leaf if axis is None else leaf[members], source, self.axes)
            replacement = jax.vmap(make_new, in_axes=(self.axes,), axis_size=self.chunk)(chosen)
            return start + self.chunk, jax.tree.map(lambda new, old: _scatter(old, members, new), replacement, value)

        return lax.while_loop(lambda carry: carry[0] < count, replace_chunk, (jnp.int32(0), value))[1]

    def _finished_indices(self, done: Bool[Array, " batch"]) -> Any:
        """Indices of the finished members, padded with an index outside the batch, and their number."""
        rank = jnp.cumsum(done, dtype=jnp.int32)
        outside = self.size + self.chunk
        padded = jnp.full(outside, self.size, jnp.int32)
        members = jnp.arange(self.size, dtype=jnp.int32)
        return padded.at[jnp.where(done, rank - 1, outside)].set(members, mode="drop", unique_indices=True), rank[-1]


def _scatter(old: Any, members: Any, new: Any) -> Any:
    return old.at[members].set(new.astype(old.dtype) if new.dtype != old.dtype else new, mode="drop")


def select(done: Any, replacement: Any, value: Any) -> Any:
    """The replacement where `done`, else `value`; the axes of `done` are the first ones of every leaf."""

    def pick(new: Any, old: Any) -> Any:
        return jnp.where(done.reshape(done.shape + (1,) * (jnp.ndim(old) - done.ndim)), new, old)

    return jax.tree.map(pick, replacement, value)


def _broadcast(size: int, tree: Any, batched: Any) -> Any:
    def spread(leaf: Any, is_batched: bool) -> Any:
        return leaf if is_batched else jnp.broadcast_to(leaf, (size, *jnp.shape(leaf)))

    return jax.tree.map(spread, tree, batched)
