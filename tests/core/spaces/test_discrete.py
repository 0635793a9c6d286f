"""Discrete, MultiDiscrete, MultiBinary: spaces of whole numbers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random

from tropism.core.spaces import Discrete, MultiBinary, MultiDiscrete, Space
from tropism.errors import ValidationError

INT32_MAX = 2**31 - 1


@given(st.integers(1, INT32_MAX), st.integers(0, 1000))
@settings(max_examples=50)
def test_a_sample_is_contained(n: int, seed: int):
    space = Discrete(n)
    assert space.sample(random.key(seed)) in space


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=4), st.integers(-1000, 1000), st.integers(0, 99))
@settings(max_examples=25)
def test_a_sample_of_many_is_contained(nvec: list[int], start: int, seed: int):
    space = MultiDiscrete(nvec, [start] * len(nvec))
    sample = space.sample(random.key(seed))
    assert sample.dtype == np.int32
    assert sample in space


def test_every_member_is_sampled_equally_often():
    counts = np.bincount(np.asarray(Discrete(5, start=2).sample(random.key(0), (10_000,))), minlength=7)
    assert counts[:2].sum() == 0
    np.testing.assert_allclose(counts[2:], 2000, rtol=0.1)


@pytest.mark.parametrize("n", [0, -1, 2.0, True, "2", None, 2**31])
def test_discrete_needs_a_whole_number_of_at_least_one(n: Any):
    with pytest.raises(ValidationError) as caught:
        Discrete(n)
    assert caught.value.name == "n"


@pytest.mark.parametrize("start", [0.5, True, 2**31, "0"])
def test_discrete_start_must_be_an_integer(start: Any):
    with pytest.raises(ValidationError):
        Discrete(2, start)


MEMBERS = [1, 3, np.int64(2), np.uint8(1), np.array(2), jnp.int32(3)]
STRANGERS = [0, 4, True, 1.0, np.float32(1), np.array([1]), "1", None, [1], {}, 2**70]


@pytest.mark.parametrize("x", MEMBERS)
def test_integers_of_any_type_are_members(x: Any):
    space = Discrete(3, start=1)
    assert space.contains(x) is True
    assert space.coerce(x) == int(x)
    assert type(space.coerce(x)) is int


@pytest.mark.parametrize("x", STRANGERS)
def test_an_invalid_action_is_rejected_by_name(x: Any):
    space = Discrete(3, start=1)
    assert space.contains(x) is False
    with pytest.raises(ValidationError, match=r"Discrete\(3, start=1\): 1 to 3") as caught:
        space.coerce(x)
    assert caught.value.value is x


def test_traced_sizes_work_under_jit():
    inside = jax.jit(lambda n, x: Discrete(n).contains(x) & Discrete(n).contains(Discrete(n).sample(random.key(0))))
    assert bool(inside(4, 3))
    assert not bool(inside(3, 3))


def test_contains_under_jit_is_false_for_non_integers():
    assert not jax.jit(lambda x: jnp.asarray(Discrete(3).contains(x)))(1.0)
    assert not jax.jit(lambda x: jnp.asarray(MultiDiscrete([2]).contains(x)))(jnp.zeros(2, jnp.int32))
    assert not jax.jit(lambda x: jnp.asarray(MultiBinary(2).contains(x)))(jnp.full(2, 2))


@pytest.mark.parametrize("nvec", [[], [0], [2.0], ["a"], [[1], [2, 3]], [2**31], None])
def test_multi_discrete_needs_integer_sizes(nvec: Any):
    with pytest.raises(ValidationError):
        MultiDiscrete(nvec)


def test_multi_discrete_needs_a_start_of_the_same_shape():
    with pytest.raises(ValidationError, match="the shape of nvec"):
        MultiDiscrete([2, 3], [0])


@pytest.mark.parametrize("x", [[0, 3], [2, 0], [0], [0.0, 0.0], [True, False], "00", None, 0])
def test_multi_discrete_rejects(x: Any):
    space = MultiDiscrete([2, 3])
    assert space.contains(x) is False
    with pytest.raises(ValidationError, match=r"MultiDiscrete\(\[2, 3\]\)"):
        space.coerce(x)


@pytest.mark.parametrize("n", [0, -1, 1.5, (), (2, 0), "2", True])
def test_multi_binary_needs_integer_sizes(n: Any):
    with pytest.raises(ValidationError):
        MultiBinary(n)


def test_multi_binary():
    space = MultiBinary((2, 3))
    assert (space.n, space.shape, space.dtype) == (6, (2, 3), np.int8)
    assert space.sample(random.key(0)) in space
    assert np.ones((2, 3), bool) in space
    assert np.full((2, 3), 2) not in space
    assert space.coerce(np.ones((2, 3), bool)).dtype == np.int8
    with pytest.raises(ValidationError, match="whole numbers in MultiBinary"):
        space.coerce(np.ones(6, int))


def several() -> list[Any]:
    return [Discrete(3), Discrete(3, 1), MultiDiscrete([3]), MultiDiscrete([3], [1]), MultiBinary(3), MultiBinary(4)]


def test_spaces_are_equal_and_hash_by_value():
    assert several() == several()
    assert len(set(several() + several())) == len(several())


@pytest.mark.parametrize("space", [Discrete(7, start=-3), MultiDiscrete([2, 9]), MultiBinary(4)], ids=repr)
def test_json_and_text_round_trip(space: Space):
    sample = space.sample(random.key(1))
    data = space.to_json(sample)
    assert np.array_equal(space.from_json(data), np.asarray(sample))
    assert np.array_equal(space.from_text(str(data)), np.asarray(sample))
    with pytest.raises(ValidationError, match="JSON"):
        space.from_text("left")


def test_a_multi_binary_of_another_dtype():
    space = MultiBinary(2, np.int32)
    assert (space.dtype, repr(space), space == MultiBinary(2)) == (np.int32, "MultiBinary(2, int32)", False)
    assert space.sample(jax.random.key(0)).dtype == space.coerce(np.array([1, 0], np.int8)).dtype == np.int32
    assert np.array([1, 0], np.int8) in space
    with pytest.raises(ValidationError, match="int8 or int32"):
        MultiBinary(2, float)
