"""Dict and Tuple: composite spaces."""

from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tropism.core.spaces import Box, Dict, Discrete, Text, Tuple
from tropism.core.spaces.composite import leaf_spaces, leaf_values
from tropism.errors import ValidationError

PAIR = Dict(go=Discrete(2), aim=Box(-1.0, 1.0, (2,)))
BOX, MOVE = Box(0.0, 1.0, (2,)), Discrete(3)
NESTED = Dict(near=BOX, rest=Tuple([MOVE, Dict(far=BOX)]))
TRIPLE = Tuple((Discrete(2), Box(-1.0, 1.0, (2,)), Dict(x=Discrete(3))))


def test_samples_are_contained_and_can_be_stacked():
    assert PAIR.sample(random.key(0)) in PAIR
    assert TRIPLE.sample(random.key(0)) in TRIPLE
    assert PAIR.sample(random.key(0), (5,))["aim"].shape == (5, 2)


def test_members_are_sampled_independently():
    twice = Tuple((Box(0.0, 1.0), Box(0.0, 1.0))).sample(random.key(0))
    assert twice[0] != twice[1]


@pytest.mark.parametrize(
    "x", [{}, {"go": 0}, {"go": 0, "aim": [0, 0], "more": 1}, {"go": 5, "aim": [0, 0]}, [0], None, 3]
)
def test_a_dict_has_exactly_its_keys(x: Any):
    assert PAIR.contains(x) is False
    with pytest.raises(ValidationError):
        PAIR.coerce(x)


@pytest.mark.parametrize("x", [(), (0, [0, 0]), (0, [0, 0], {"x": 9}), "abc", None, {0: 1}])
def test_a_tuple_has_exactly_its_items(x: Any):
    assert TRIPLE.contains(x) is False
    with pytest.raises(ValidationError):
        TRIPLE.coerce(x)


def test_an_error_names_the_member():
    with pytest.raises(ValidationError) as caught:
        TRIPLE.coerce((0, [0, 0], {"x": 9}))
    assert caught.value.name == "action[2]['x']"


def test_equality_ignores_the_order_of_keys():
    other = Dict(OrderedDict(aim=Box(-1.0, 1.0, (2,)), go=Discrete(2)))
    assert other == PAIR
    assert hash(other) == hash(PAIR)
    assert Dict(go=Discrete(2)) != PAIR
    assert Tuple((Discrete(2),)) == Tuple([Discrete(2)])


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("spaces", [{"a": 3}, {1: Discrete(2)}, [Discrete(2)]])
def test_the_members_of_a_dict_must_be_spaces(spaces: Any):
    with pytest.raises(ValidationError):
        Dict(spaces)


@pytest.mark.parametrize("spaces", [[3], Discrete(2), None])
def test_the_members_of_a_tuple_must_be_spaces(spaces: Any):
    with pytest.raises(ValidationError):
        Tuple(spaces)


def test_json_round_trip():
    for space in (PAIR, TRIPLE):
        sample = space.sample(random.key(3))
        back = space.from_json(space.to_json(sample))
        assert jax.tree.all(jax.tree.map(lambda x, y: bool(np.array_equal(x, y)), back, jax.device_get(sample)))


def test_contains_works_under_jit():
    assert bool(jax.jit(PAIR.contains)({"go": jnp.int32(1), "aim": jnp.zeros(2)}))
    assert not bool(jax.jit(PAIR.contains)({"go": jnp.int32(2), "aim": jnp.zeros(2)}))


def test_empty_spaces_contain_the_empty_value():
    assert Dict().sample(random.key(0)) in Dict()
    assert Tuple(()).sample(random.key(0)) in Tuple(())


def test_members_can_be_indexed():
    assert PAIR["go"] == Discrete(2)
    assert TRIPLE[0] == Discrete(2)
    assert Dict(say=Text(5)).sample(random.key(0))["say"] in Text(5)


def test_leaf_spaces_are_those_of_the_parts_in_order():
    assert leaf_spaces(NESTED) == [BOX, MOVE, BOX]
    assert leaf_spaces(MOVE) == [MOVE]


def test_leaf_values_have_the_path_of_each_part():
    near, far = np.zeros(2), np.ones(2)
    leaves = leaf_values(NESTED, {"near": near, "rest": (2, {"far": far})}, "obs")
    assert [name for name, _, _ in leaves] == ["obs['near']", "obs['rest'][0]", "obs['rest'][1]['far']"]
    assert [space for _, space, _ in leaves] == [BOX, MOVE, BOX]
    assert [leaves[0][2] is near, leaves[1][2], leaves[2][2] is far] == [True, 2, True]


def test_a_value_with_other_parts_is_one_leaf():
    wrong = {"near": np.zeros(2), "rest": (2,)}
    assert [(name, space) for name, space, _ in leaf_values(NESTED, wrong, "obs")] == [
        ("obs['near']", BOX),
        ("obs['rest']", NESTED["rest"]),
    ]
    assert leaf_values(NESTED, 3, "obs") == [("obs", NESTED, 3)]
