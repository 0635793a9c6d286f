"""Replaces the finished members of a batch, and computes the replacement only for those."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool

from tropism.errors import ValidationError

# "finished" gathers the finished members and replaces those; "select" makes a replacement for all and
# keeps those that are needed (and is the one that works under reverse-mode `grad`); "auto" chooses.
Restarts = Literal["auto", "finished", "select"]

# Measured on two CPU cores with CartPole: smaller batches are faster with a select.
SMALLEST_GATHERED_BATCH = 128
SMALLEST_CHUNK = 64
CHUNKS_PER_BATCH = 64


def check_restarts(restarts: Any) -> None:
    if restarts not in get_args(Restarts):
        raise ValidationError("restarts", restarts, f"one of {', '.join(get_args(Restarts))}")


def replace_where(
    fresh: Callable[[Any], Any],
    done: Any,
    source: Any,
    value: Any,
    restarts: Restarts = "auto",
    chunk: int | None = None,
) -> Any:
    """`value`, or `fresh(source)` where `done`.

    Alone it is a conditional. Under `vmap` it is a computation over the batch that costs by the number
    of finished members; the result is that of a select, whatever the chunk. `fresh` must not close over
    traced values: they go into `source`.
    """
    if restarts == "select":
        return _select(done, fresh(source), value)
    if not isinstance(done, Tracer):  # a plain call: a conditional would be compiled again every time
        return fresh(source) if done else value

    @custom_vmap
    def replace(done: Any, source: Any, value: Any) -> Any:
        return lax.cond(done, lambda: fresh(source), lambda: value)

    @replace.def_vmap
    def replace_batch(size: int, batched: Any, done: Any, source: Any, value: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        value = _broadcast(size, value, batched[2])
        everywhere = jax.tree.map(lambda _: True, value)
        done = done if batched[0] else jnp.broadcast_to(done, (size,))
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, batched[1])
        batch = _Batch(fresh, axes, size, chunk or max(SMALLEST_CHUNK, size // CHUNKS_PER_BATCH))
        if restarts == "auto" and size < SMALLEST_GATHERED_BATCH:
            return batch.select(done, source, value), everywhere
        if restarts == "auto":
            return lax.platform_dependent(done, source, value, cpu=batch.gather, default=batch.select), everywhere
        return batch.gather(done, source, value), everywhere

    return replace(done, source, value)


class _Batch:
    """The two ways to replace the finished members of a batch."""

    def __init__(self, fresh: Callable[[Any], Any], axes: Any, size: int, chunk: int):
        self.fresh = fresh
        self.axes = axes
        self.size = size
        self.chunk = chunk

    def select(self, done: Bool[Array, " batch"], source: Any, value: Any) -> Any:
        replacement = jax.vmap(self.fresh, in_axes=(self.axes,), axis_size=self.size)(source)
        return _select(done, replacement, value)

    def gather(self, done: Bool[Array, " batch"], source: Any, value: Any) -> Any:
        finished, count = self._finished(done)

        def replace_chunk(carry: Any) -> Any:
            start, value = carry
            members = lax.dynamic_slice(finished, (start,), (self.chunk,))
            chosen = jax.tree.map(lambda leaf, axis: leaf if axis is None else leaf[members], source, self.axes)
            replacement = jax.vmap(self.fresh, in_axes=(self.axes,), axis_size=self.chunk)(chosen)
            return start + self.chunk, jax.tree.map(lambda new, old: _scatter(old, members, new), replacement, value)

        return lax.while_loop(lambda carry: carry[0] < count, replace_chunk, (jnp.int32(0), value))[1]

    def _finished(self, done: Bool[Array, " batch"]) -> Any:
        """Indices of the finished members, padded with an index outside the batch, and their number."""
        rank = jnp.cumsum(done, dtype=jnp.int32)
        nowhere = self.size + self.chunk
        padded = jnp.full(nowhere, self.size, jnp.int32)
        members = jnp.arange(self.size, dtype=jnp.int32)
        return padded.at[jnp.where(done, rank - 1, nowhere)].set(members, mode="drop", unique_indices=True), rank[-1]


def _scatter(old: Any, members: Any, new: Any) -> Any:
    return old.at[members].set(new.astype(old.dtype) if new.dtype != old.dtype else new, mode="drop")


def _select(done: Any, replacement: Any, value: Any) -> Any:
    def pick(new: Any, old: Any) -> Any:
        return jnp.where(done.reshape(done.shape + (1,) * (jnp.ndim(old) - done.ndim)), new, old)

    return jax.tree.map(pick, replacement, value)


def _broadcast(size: int, tree: Any, batched: Any) -> Any:
    def spread(leaf: Any, is_batched: bool) -> Any:
        return leaf if is_batched else jnp.broadcast_to(leaf, (size, *jnp.shape(leaf)))

    return jax.tree.map(spread, tree, batched)
