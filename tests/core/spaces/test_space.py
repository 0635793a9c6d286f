"""All spaces: `contains` accepts any object."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from jax import random
from tests.core.spaces.examples import SPACES

from tropism.core.spaces import (
    Space,
)
from tropism.core.spaces.space import check_count
from tropism.errors import ValidationError

every_space = pytest.mark.parametrize("space", SPACES, ids=repr)

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text() | st.binary()
arrays = npst.arrays(
    st.sampled_from([np.float32, np.float64, np.int8, np.int64, np.uint64, bool, np.complex64, "U3", object]),
    npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
junk = st.recursive(
    scalars | arrays,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from("ab") | st.integers(), inner, max_size=3)
    ),
    max_leaves=5,
)


@every_space
@given(x=junk)
def test_contains_accepts_anything(space: Space, x: Any):
    assert space.contains(x) in (True, False)
    assert isinstance(x in space, bool)


class Hostile:
    """An object whose methods all raise."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no")

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: Any) -> Any:
        raise KeyError(index)


@every_space
@pytest.mark.parametrize("x", [Hostile(), object(), int, lambda: 0, iter([1]), np.datetime64("2020"), random.key(0)])
def test_contains_accepts_odd_objects(space: Space, x: Any):
    assert space.contains(x) is False


@every_space
def test_a_space_equals_only_an_equal_space(space: Space):
    assert [other == space for other in SPACES] == [other is space for other in SPACES]
    assert space != "space"


@pytest.mark.parametrize("value", [2, np.int8(2), np.uint64(2), np.array(2)])
def test_check_count_returns_an_int(value: Any):
    assert type(check_count("size", value, 2)) is int


@pytest.mark.parametrize("value", [1, True, 2.0, "2", None, np.array([2]), np.bool_(True)])
def test_an_invalid_count_is_rejected_by_name(value: Any):
    with pytest.raises(ValidationError, match=r"size is .*; expected a whole number of at least 2"):
        check_count("size", value, 2)
