"""Packs a pytree of arrays into one array of 32-bit words, so that a step has one input and one output."""

import math
import struct
from collections.abc import Callable
from functools import cached_property, partial, reduce
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jaxtyping import Array, UInt32
from numpy.typing import NDArray

from tropism.core.params import leaf_name

WORD = 4  # bytes
STRUCT_CODES = frozenset("?bBhHiIefd")  # dtype characters with the same meaning in NumPy and `struct`
LARGEST_MERGED = 64  # words
LARGEST_PACKED = 4096  # entries; larger arrays of params are not packed


class Slot(NamedTuple):
    """The position of one leaf, `words` words from word `start`, and its type."""

    start: int
    words: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    key_impl: Any  # the generator if the leaf is a typed PRNG key

    @property
    def items(self) -> int:
        return math.prod(self.shape)


class Layout:
    """The packed form of every pytree with the structure, shapes and dtypes of `example`."""

    def __init__(self, example: Any):
        leaves, self.treedef = jax.tree.flatten(example)
        self.slots: list[Slot] = []
        self.size = 0
        for leaf in leaves:
            slot = _slot(leaf, self.size)
            self.slots.append(slot)
            self.size += slot.words

    def pack(self, tree: Any) -> UInt32[Array, " words"]:
        pieces = [_to_words(leaf, slot) for leaf, slot in zip(jax.tree.leaves(tree), self.slots, strict=True)]
        if not pieces:
            return jnp.zeros(0, jnp.uint32)
        return self._merge(pieces) if self.size <= LARGEST_MERGED else jnp.concatenate(pieces)

    def _merge(self, pieces: list[Any]) -> UInt32[Array, " _"]:
        """`concatenate` as one kernel instead of several on the CPU; its cost is words times pieces."""
        padding = [(slot.start, self.size - slot.start - slot.words, 0) for slot in self.slots]
        padded = (lax.pad(piece, jnp.uint32(0), [widths]) for piece, widths in zip(pieces, padding, strict=True))
        return reduce(jnp.bitwise_or, padded)

    def unpack(self, words: UInt32[Array, " words"]) -> Any:
        return self.treedef.unflatten([_from_words(words, slot) for slot in self.slots])

    def read(self, words: Any) -> Any:
        """The tree on the host, in new arrays; a 0-d leaf becomes a Python scalar."""
        return reader(self.structure(self.slots))(words)

    def write(self, tree: Any) -> NDArray[Any]:
        """`pack` on the host."""
        words = np.zeros(self.size, np.uint32)
        for leaf, slot in zip(jax.tree.leaves(tree), self.slots, strict=True):
            data = random.key_data(leaf) if slot.key_impl is not None else leaf
            target = words[slot.start : slot.start + slot.words].view(np.uint8)
            flat = np.asarray(data, slot.dtype).reshape(-1).view(np.uint8)
            target[: flat.size] = flat
        return words

    def structure(self, slots: Any) -> Any:
        """The tree with the given objects as leaves."""
        return self.treedef.unflatten(slots)

    @cached_property
    def cache_key(self) -> str:
        """Equal for equal layouts of trees of the same classes, within one process."""
        return f"{self.treedef} of {', '.join(self.signature.values())}"

    @cached_property
    def signature(self) -> dict[str, str]:
        """The type of each leaf by its path, for files: independent of class names."""
        return _signature(self.structure(self.slots))


class SplitLayout:
    """A layout of params that keeps large arrays separate from the words, so that a step does not copy them."""

    def __init__(self, example: Any):
        leaves, self.treedef = jax.tree.flatten(example)
        self.is_large = [math.prod(np.shape(leaf)) > LARGEST_PACKED for leaf in leaves]
        self.small = Layout([leaf for leaf, large in zip(leaves, self.is_large, strict=True) if not large])
        self.large = Layout([leaf for leaf, large in zip(leaves, self.is_large, strict=True) if large])

    def write(self, tree: Any) -> tuple[Any, ...]:
        leaves = jax.tree.leaves(tree)
        small = [leaf for leaf, large in zip(leaves, self.is_large, strict=True) if not large]
        return self.small.write(small), *(leaf for leaf, large in zip(leaves, self.is_large, strict=True) if large)

    def unpack(self, packed: tuple[Any, ...]) -> Any:
        small, large = iter(self.small.unpack(packed[0])), iter(packed[1:])
        return self.treedef.unflatten([next(large if is_large else small) for is_large in self.is_large])

    def read(self, packed: tuple[Any, ...]) -> Any:
        """The tree on the host."""
        small, large = iter(self.small.read(np.asarray(packed[0]))), (np.asarray(array) for array in packed[1:])
        return self.treedef.unflatten([next(large if is_large else small) for is_large in self.is_large])

    def shapes(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        words = jax.ShapeDtypeStruct((self.small.size,), jnp.uint32)
        return words, *(jax.ShapeDtypeStruct(slot.shape, slot.dtype) for slot in self.large.slots)

    @cached_property
    def cache_key(self) -> str:
        return f"{self.treedef} of {self.small.cache_key} and {self.large.cache_key}"

    @cached_property
    def signature(self) -> dict[str, str]:
        small, large = iter(self.small.slots), iter(self.large.slots)
        return _signature(self.treedef.unflatten([next(large if is_large else small) for is_large in self.is_large]))


def compute_at_once(tree: Any, max_words: int | None = None) -> Any:
    """The tree, packed as in a session: otherwise XLA computes each leaf apart from the others, and rounds an
    observation differently from the state it shows. Larger trees are not packed, because the copy costs time."""
    layout = Layout(tree)
    if max_words is not None and layout.size > max_words:
        return tree
    return layout.unpack(lax.optimization_barrier(layout.pack(tree)))


def _signature(slots: Any) -> dict[str, str]:
    leaves = jax.tree_util.tree_leaves_with_path(slots, is_leaf=lambda x: isinstance(x, Slot))
    return {leaf_name(path): f"{slot.dtype.name}{list(slot.shape)}" for path, slot in leaves}


def reader(slots: Any, keep_dtype: bool = False) -> Callable[[Any], Any]:
    """A function that reads this tree of slots from words on the host (any buffer), into new arrays.

    A 0-d leaf becomes a Python scalar, or a NumPy one with `keep_dtype`.
    """
    if isinstance(slots, dict) and not keep_dtype:
        return _dict_reader(slots)
    return _tree_reader(slots, lambda slot: _slot_reader(slot, keep_dtype))


def viewer(slots: Any) -> Callable[[Any], Any]:
    """A function that returns this tree of slots as views into the words; those of wide numbers may be unaligned."""
    return _tree_reader(slots, lambda slot: partial(np.ndarray, slot.shape, slot.dtype, offset=slot.start * WORD))


def _tree_reader(slots: Any, slot_reader: Callable[[Slot], Callable[[Any], Any]]) -> Callable[[Any], Any]:
    if isinstance(slots, Slot):
        return slot_reader(slots)
    if isinstance(slots, dict):
        readers = {name: _tree_reader(slot, slot_reader) for name, slot in slots.items()}
        return lambda words: {name: read(words) for name, read in readers.items()}
    leaves, treedef = jax.tree.flatten(slots, is_leaf=lambda x: isinstance(x, Slot))
    parts = [slot_reader(slot) for slot in leaves]
    return lambda words: treedef.unflatten([read(words) for read in parts])


def _dict_reader(slots: dict[str, Any]) -> Callable[[Any], dict[str, Any]]:
    """Reads all scalars and tuples of scalars in one call, which takes little longer than reading one."""
    scalars: list[Slot] = []
    getters: list[tuple[str, Callable[[Any], Any]]] = []
    others: list[tuple[str, Callable[[Any], Any]]] = []
    for name, part in slots.items():
        at = len(scalars)
        if _is_scalar(part):
            scalars.append(part)
            getters.append((name, itemgetter(at)))
        elif type(part) is tuple and all(_is_scalar(slot) for slot in part):
            scalars.extend(part)
            getters.append((name, itemgetter(slice(at, len(scalars)))))
        else:
            others.append((name, reader(part)))
    unpack = struct.Struct(_format(scalars)).unpack_from

    def read(words: Any) -> dict[str, Any]:
        values = unpack(words)
        result = {name: get(values) for name, get in getters}
        for name, read_part in others:
            result[name] = read_part(words)
        return result

    return read


def _is_scalar(slot: Any) -> bool:
    return type(slot) is Slot and slot.shape == () and slot.dtype.char in STRUCT_CODES


def _format(scalars: list[Slot]) -> str:
    """The `struct` format of the scalars, which are in the order of the tree."""
    parts, at = ["="], 0
    for slot in scalars:
        parts.append(f"{slot.start * WORD - at}x{slot.dtype.char}")
        at = slot.start * WORD + slot.dtype.itemsize
    return "".join(parts)


def _slot_reader(slot: Slot, keep_dtype: bool) -> Callable[[Any], Any]:
    _, _, dtype, shape, _ = slot
    count, offset = slot.items, slot.start * WORD
    if shape == ():
        return lambda words: (
            value := np.frombuffer(words, dtype, 1, offset)[0],
            value if keep_dtype else value.item(),
        )[1]
    if len(shape) == 1:
        return lambda words: np.frombuffer(words, dtype, count, offset).copy()
    return lambda words: np.frombuffer(words, dtype, count, offset).reshape(shape).copy()


def _slot(leaf: Any, start: int) -> Slot:
    aval = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(jnp.asarray(leaf))
    key_impl = None
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        key_impl = random.key_impl(jnp.empty((), aval.dtype))
        aval = jax.eval_shape(random.key_data, aval)
    dtype = np.dtype(aval.dtype)
    words = -(-math.prod(aval.shape) * dtype.itemsize // WORD)
    return Slot(start, words, dtype, tuple(aval.shape), key_impl)


def _to_words(leaf: Any, slot: Slot) -> UInt32[Array, " words"]:
    if slot.key_impl is not None:
        leaf = random.key_data(leaf)
    flat = jnp.asarray(leaf, slot.dtype).reshape(-1)
    if slot.dtype == bool:
        flat = flat.astype(jnp.uint8)
    per_word = WORD // slot.dtype.itemsize
    if per_word > 1:
        flat = jnp.pad(flat, (0, slot.words * per_word - slot.items)).reshape(-1, per_word)
    return lax.bitcast_convert_type(flat, jnp.uint32).reshape(-1)


def _from_words(words: UInt32[Array, " words"], slot: Slot) -> Any:
    piece = words[slot.start : slot.start + slot.words]
    stored = np.dtype(np.uint8) if slot.dtype == bool else slot.dtype
    if stored.itemsize > WORD:
        piece = piece.reshape(-1, stored.itemsize // WORD)
    flat = lax.bitcast_convert_type(piece, stored).reshape(-1)[: slot.items]
    leaf = flat.astype(slot.dtype).reshape(slot.shape)
    return leaf if slot.key_impl is None else random.wrap_key_data(leaf, impl=slot.key_impl)
