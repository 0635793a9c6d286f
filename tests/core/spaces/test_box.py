"""Box and Image: bounds, samples and rejected values."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import random

from tropism.core.spaces import Box, Image
from tropism.errors import ValidationError

INF = float("inf")
LARGEST = float(np.finfo(np.float32).max)
SUBNORMAL = 2.0**-149  # the smallest float32; XLA flushes it to zero
finite = st.floats(-LARGEST, LARGEST, width=32)
bounds = st.tuples(finite | st.just(-INF), finite | st.just(INF)).filter(lambda pair: pair[0] <= pair[1])
integers = st.sampled_from(["int8", "uint8", "int16", "int32", "uint32"])


@given(bounds, st.integers(0, 2**32 - 1))
@example((SUBNORMAL, SUBNORMAL), 0)
@example((-SUBNORMAL, -SUBNORMAL), 0)
@example((SUBNORMAL, 2 * SUBNORMAL), 0)
@example((-SUBNORMAL, 0.0), 0)
@settings(max_examples=50)
def test_a_sample_of_any_box_is_contained(pair: tuple[float, float], seed: int):
    box = Box(*pair, (3,))
    sample = box.sample(random.key(seed))
    assert sample.dtype == np.float32
    assert sample in box


@given(integers, st.data())
@settings(max_examples=50)
def test_a_sample_of_any_box_of_integers_is_contained(dtype: str, data: st.DataObject):
    limits = np.iinfo(dtype)
    low = data.draw(st.integers(int(limits.min), int(limits.max)))
    high = data.draw(st.integers(low, int(limits.max)))
    box = Box(low, high, (4,), dtype)
    assert box.sample(random.key(data.draw(st.integers(0, 99)))) in box


@pytest.mark.parametrize("pair", [(-LARGEST, LARGEST), (-INF, INF), (0, INF), (-INF, 0), (LARGEST, INF), (3, 3)])
def test_samples_at_the_extremes_are_contained(pair: tuple[float, float]):
    box = Box(*pair, (100,))
    assert box.sample(random.key(0)) in box


def test_each_entry_is_sampled_within_its_own_bounds():
    box = Box([0.0, 5.0, -INF, -INF], [1.0, INF, -5.0, INF])
    samples = box.sample(random.key(0), (2000,))
    mean = np.asarray(samples.mean(0))
    np.testing.assert_allclose(mean, [0.5, 6.0, -6.0, 0.0], atol=0.1)


def test_stacked_samples_have_a_leading_shape():
    assert Box(0, 1, (2,)).sample(random.key(0), (5, 3)).shape == (5, 3, 2)


@pytest.mark.parametrize("full", ["int32", "uint32", "int8"])
def test_the_full_range_of_integers_is_sampled(full: str):
    limits = np.iinfo(full)
    samples = np.asarray(Box(limits.min, limits.max, (200,), full).sample(random.key(0)), np.float64)
    middle = (float(limits.min) + float(limits.max)) / 2
    assert samples.min() < middle < samples.max()


@pytest.mark.parametrize(
    ("x", "inside"),
    [
        (np.zeros(2, np.float32), True),
        (np.zeros(2, np.float16), True),
        ([0.0, 1.0], True),
        ((0, 1), True),
        (jnp.ones(2), True),
        (np.zeros(2, np.float64), False),
        (np.zeros(2, bool), False),
        (np.float32(0), False),
        (np.zeros((2, 1), np.float32), False),
        (np.full(2, np.nan, np.float32), False),
        (np.array([0, 1.5], np.float32), False),
        ([0.0, [1.0]], False),
        ("ab", False),
        (None, False),
        ({"a": 0}, False),
    ],
)
def test_contains_never_casts_or_broadcasts(x: Any, inside: bool):
    assert Box(-1.0, 1.0, (2,)).contains(x) is inside
    assert (x in Box(-1.0, 1.0, (2,))) is inside


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("low", (1.0, 0.0)),
        ("low", ([0.0, 2.0], [1.0, 1.0])),
        ("high", (np.zeros(2), np.zeros(3))),
        ("low", (np.zeros(2), 1.0, (3,))),
        ("low", (np.nan, 1.0)),
        ("low", ("a", 1.0)),
        ("shape", (0, 1, (2.5,))),
        ("shape", (0, 1, (-1,))),
        ("dtype", (0, 1, (), "text")),
        ("dtype", (0, 1, (), bool)),
    ],
)
def test_invalid_bounds_are_rejected(name: str, arguments: tuple[Any, ...]):
    with pytest.raises(ValidationError) as caught:
        Box(*arguments)
    assert caught.value.name == name


def test_a_large_box_stores_two_numbers():
    box = Box(0.0, 1.0, (4, 84, 84, 1))
    assert box.low.shape == box.shape
    assert box.low.strides == box.high.strides == (0, 0, 0, 0)


def test_boxes_are_equal_and_hash_by_value():
    box = Box(0.0, 1.0, (2,))
    assert box == Box(np.zeros(2), np.ones(2))
    assert hash(box) == hash(Box(np.zeros(2), np.ones(2)))
    several: list[Any] = [box, Box(0, 1, (2,)), Box(0, 2, (2,)), Box(0, 1, (3,)), Box(0, 1, (2,), np.int8)]
    assert len(set(several)) == 4
    assert box != Image(1, 1)


def test_traced_bounds_work_under_jit():
    @jax.jit
    def inside(high: Any, x: Any) -> Any:
        box = Box(0.0, high, (2,))
        return box.contains(box.sample(random.key(0))), box.contains(x)

    assert [bool(answer) for answer in inside(3.0, jnp.array([1.0, 2.0]))] == [True, True]
    assert [bool(answer) for answer in inside(1.5, jnp.array([1.0, 2.0]))] == [True, False]
    assert [bool(answer) for answer in inside(jnp.inf, jnp.array([1.0, 2e9]))] == [True, True]


def test_contains_under_jit_is_false_for_another_shape():
    assert not jax.jit(lambda x: Box(0, 1, (2,)).contains(x))(jnp.zeros(3))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int64, np.uint8])
def test_coerce_casts_any_real_dtype(dtype: Any):
    action = Box(-2.0, 2.0, (1,)).coerce(np.ones(1, dtype))
    assert action.dtype == np.float32
    assert action == [1.0]


def test_coerce_tolerates_only_rounding():
    box = Box(-0.1, 0.1, (1,))
    assert box.coerce([np.float64(0.1)])[0] == np.float32(0.1)
    with pytest.raises(ValidationError, match=r"action is \[0\.11\]"):
        box.coerce([0.11])


@pytest.mark.parametrize("x", [[np.nan], [1, 1], 1.0, "1", None, [True], [1j], {}])
def test_coerce_errors_have_the_value_and_the_space(x: Any):
    with pytest.raises(ValidationError) as caught:
        Box(-2.0, 2.0, (1,)).coerce(x)
    assert caught.value.value is x
    assert "Box(-2.0, 2.0, (1,), float32)" in str(caught.value)


def test_coerce_of_integers_rejects_fractions():
    box = Box(0, 9, (2,), np.int32)
    assert box.coerce([3, 4]).dtype == np.int32
    with pytest.raises(ValidationError):
        box.coerce([3.0, 4.0])
    with pytest.raises(ValidationError):
        box.coerce([3, 10])


@given(st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=3))
def test_json_round_trip(values: list[float]):
    box = Box(-1.0, 1.0, (3,))
    array = np.array(values, np.float32)
    assert np.array_equal(box.from_json(box.to_json(array)), array)


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, 2.5, 1), ("8", 8, 3), (True, 8, 3)])
def test_an_image_needs_integer_sizes(sizes: tuple[Any, ...]):
    with pytest.raises(ValidationError):
        Image(*sizes)


def test_an_image_has_dtype_uint8():
    image = Image(4, 5)
    assert (image.shape, image.dtype) == ((4, 5, 3), np.uint8)
    assert image.sample(random.key(0)) in image
    assert repr(image) == "Image(4, 5, 3)"


@pytest.mark.slow
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0.1, 0.1 + 1e-7, "float64"),
        (-1e300, 1e300, "float64"),
        (1 / 3, INF, "float64"),
        (-INF, INF, "int64"),
        (-3, 2**40, "int64"),
        (-(2**40), 5, "int64"),
        (7, INF, "uint64"),
    ],
)
def test_a_sample_of_a_wide_box_is_contained_with_and_without_x64(low: Any, high: Any, dtype: str, x64: bool):
    with jax.enable_x64(x64):
        box = Box(low, high, (4,), dtype)
        for seed in range(5):
            sample = box.sample(random.key(seed), (3,))
            assert all(row in box for row in sample)


def test_infinite_integer_bounds_are_the_limits_of_the_dtype():
    limits = np.iinfo(np.int64)
    box = Box(-INF, [INF, 5], (2,), np.int64)
    assert box.low.tolist() == [limits.min] * 2
    assert box.high.tolist() == [limits.max, 5]
    assert Box(0, INF, (), np.uint64).high == np.iinfo(np.uint64).max


def test_sampling_a_box_that_jax_cannot_represent_raises():
    for box in (Box(2**40, 2**41, (), np.int64), Box(0.1, 0.1, (), np.float64)):
        with pytest.raises(ValidationError, match="jax_enable_x64"):
            box.sample(random.key(0))


def test_contains_under_jit_accepts_any_object():
    @jax.jit
    def answers(high: Any, number: Any, flag: Any):
        box = Box(0, high)
        strangers = [box.contains(x) for x in (None, "a", [1, 2], True, np.bool_(True), flag, random.key(0), 2**70)]
        return strangers, box.contains(number), box.contains(0.5), box.contains(3.0)

    strangers, *rest = answers(jnp.float32(1), jnp.float32(0.25), jnp.bool_(True))
    assert strangers == [False] * 8
    assert [bool(answer) for answer in rest] == [True, True, False]
    assert not jax.jit(Box(0, 1).contains)(jnp.bool_(True))
