"""Packing: a round trip of any tree of arrays is exact."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from jax import random

from tropism.core.compiled.packing import LARGEST_MERGED, WORD, Layout, viewer

DTYPES = ["bool", "uint8", "int8", "float16", "int16", "uint16", "float32", "int32", "uint32"]
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
)
trees = st.recursive(
    arrays, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner), max_leaves=5
)


def assert_identical(actual: Any, expected: Any):
    def check(x: Any, y: Any):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        assert x.tobytes() == y.tobytes()

    jax.tree.map(check, actual, expected)


@given(trees)
@settings(max_examples=60)
def test_write_then_read_and_unpack_is_exact(tree: Any):
    layout = Layout(tree)
    words = layout.write(tree)
    assert words.shape == (layout.size,)
    assert_identical(layout.unpack(jnp.asarray(words)), tree)
    plain = jax.tree.map(lambda leaf: leaf.item() if leaf.shape == () else leaf, tree)
    assert jax.tree.structure(layout.read(words)) == jax.tree.structure(tree)
    jax.tree.map(np.testing.assert_array_equal, layout.read(words), plain)


@pytest.mark.slow
@given(trees)
@settings(max_examples=40)
def test_packing_on_the_device_and_on_the_host_agree(tree: Any):
    layout = Layout(tree)
    assert np.array_equal(layout.pack(tree), layout.write(tree))


EXAMPLE = {
    "odd": np.arange(5, dtype=np.uint8),
    "half": np.arange(3, dtype=np.float16),
    "flags": np.array([True, False, True]),
    "number": np.float32(-0.0),
    "nan": np.array([np.nan, np.inf], np.float32),
    "empty": np.zeros((0, 3), np.float32),
}


def test_packing_works_under_jit_and_vmap():
    layout = Layout(EXAMPLE)
    assert_identical(jax.jit(lambda tree: layout.unpack(layout.pack(tree)))(EXAMPLE), EXAMPLE)
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), EXAMPLE)
    assert_identical(jax.vmap(layout.unpack)(jax.vmap(layout.pack)(batch)), batch)


def test_every_leaf_starts_at_a_word():
    layout = Layout(EXAMPLE)
    starts = np.cumsum([0, *(-(-slot.items * slot.dtype.itemsize // WORD) for slot in layout.slots)])
    assert [slot.start for slot in layout.slots] == starts[:-1].tolist()
    assert layout.size == starts[-1]


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_typed_keys_keep_their_generator(impl: str, shape: tuple[int, ...]):
    keys = random.split(random.key(7, impl=impl), shape) if shape else random.key(7, impl=impl)
    layout = Layout({"key": keys, "x": 1.0})
    packed = layout.pack({"key": keys, "x": 1.0})
    assert np.array_equal(packed, layout.write({"key": keys, "x": 1.0}))
    back = layout.unpack(packed)["key"]
    assert back.dtype == keys.dtype
    assert np.array_equal(random.key_data(back), random.key_data(keys))


def test_64_bit_numbers_are_exact_in_x64():
    with jax.enable_x64(True):
        tree = {"x": np.array([1 / 3, -1e300]), "n": np.int64(2**60 + 1), "u": np.array([2**63 + 5], np.uint64)}
        layout = Layout(tree)
        assert_identical(layout.unpack(layout.pack(tree)), tree)
        assert np.array_equal(layout.pack(tree), layout.write(tree))


def test_python_numbers_have_the_dtypes_of_jax():
    layout = Layout((1, 2.5, True))
    assert [slot.dtype.name for slot in layout.slots] == ["int32", "float32", "bool"]
    assert layout.read(layout.write((1, 2.5, True))) == (1, 2.5, True)


def test_signatures_distinguish_layouts():
    same = {"a": np.zeros(3, np.float32)}
    others: list[Any] = [
        {"b": np.zeros(3, np.float32)},
        {"a": np.zeros(3, np.int32)},
        {"a": np.zeros((3, 1), np.float32)},
    ]
    assert Layout(same).signature == Layout({"a": np.ones(3, np.float32)}).signature
    assert Layout(same).signature not in [Layout(other).signature for other in others]


def test_read_returns_new_arrays():
    layout = Layout(np.zeros(2, np.float32))
    words = layout.write(np.ones(2, np.float32))
    first = layout.read(words)
    first[:] = 5
    assert layout.read(words).tolist() == [1, 1]


def test_scalars_among_arrays_are_read_as_python_numbers():
    tree = {
        "a": np.bool_(True),
        "array": np.arange(3, dtype=np.uint8),
        "half": np.float16(0.5),
        "nested": {"deep": np.float32(0.25)},
        "none": (),
        "pair": (np.int32(-7), np.uint16(9)),
        "mixed": (np.int8(-1), np.zeros(2, np.float32)),
        "z": np.uint8(200),
    }
    words = Layout(tree).write(tree)
    for buffer in (words, memoryview(jnp.asarray(words))):
        read = Layout(tree).read(buffer)
        assert read["a"] is True
        assert read["array"].tolist() == [0, 1, 2]
        assert (read["half"], read["nested"], read["z"]) == (0.5, {"deep": 0.25}, 200)
        assert (read["none"], read["pair"], read["mixed"][0]) == ((), (-7, 9), -1)
        assert {type(number) for number in (*read["pair"], read["z"])} == {int}


@pytest.mark.parametrize("size", [LARGEST_MERGED - 2, LARGEST_MERGED - 1, LARGEST_MERGED])
def test_small_and_large_trees_are_packed_the_same_way(size: int):
    tree = [np.arange(size, dtype=np.int32), np.float32(-1.5), np.array([], np.float32), np.array([1, 2, 3], np.uint8)]
    layout = Layout(tree)
    assert np.array_equal(jax.jit(layout.pack)(tree), layout.write(tree))


def test_views_show_what_is_written_later():
    tree = {"first": np.arange(3, dtype=np.int32), "wide": np.arange(2.0), "flags": np.array([True, False])}
    layout = Layout(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree))
    slots = layout.structure(layout.slots)
    words = layout.write(tree)
    views = viewer(slots)(words)
    words[:] = layout.write({**tree, "wide": np.array([5.0, 7.0]), "flags": np.array([False, True])})
    assert jax.tree.map(np.ndarray.tolist, views) == {"first": [0, 1, 2], "wide": [5.0, 7.0], "flags": [False, True]}
