"""Packs a pytree of arrays into one array of 32-bit words, so that a step is one array in and one out."""

import math
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jaxtyping import Array, UInt32

WORD = 4  # bytes


class Slot(NamedTuple):
    """Where one leaf lies: `words` words from `start`, `dtype` and `shape` on the host."""

    start: int
    words: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    key_impl: str | None  # set where the leaf is a typed PRNG key


class Layout:
    """The packed form of one pytree structure."""

    def __init__(self, example: Any):
        leaves, self.treedef = jax.tree.flatten(jax.eval_shape(lambda: example) if False else example)
        self.slots: list[Slot] = []
        start = 0
        for leaf in leaves:
            slot = _slot(leaf, start)
            self.slots.append(slot)
            start += slot.words
        self.size = start

    def pack(self, tree: Any) -> UInt32[Array, " words"]:
        leaves = [_to_words(leaf) for leaf in jax.tree.leaves(tree)]
        return jnp.concatenate(leaves) if leaves else jnp.zeros(0, jnp.uint32)

    def unpack(self, words: UInt32[Array, " words"]) -> Any:
        """The tree again, inside a trace."""
        return self.treedef.unflatten([_from_words(words, slot) for slot in self.slots])

    def read(self, words: np.ndarray[Any, Any]) -> Any:
        """The tree on the host: fresh arrays, Python scalars for 0-d leaves."""
        return self.treedef.unflatten([_read(words, slot) for slot in self.slots])

    @cached_property
    def signature(self) -> str:
        """Equal for equal layouts, also between processes."""
        leaves = ",".join(f"{slot.dtype.name}{list(slot.shape)}" for slot in self.slots)
        return f"{self.treedef}:{leaves}"
