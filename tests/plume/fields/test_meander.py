"""The meandering plume against its equations."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tropism.errors import ValidationError
from tropism.plume.fields import Meander


def test_width_grows_with_distance_and_cross_wind_integral_is_constant() -> None:
    field = Meander(growth=0.05, sigma=2.0)
    state = field.init(random.key(0))
    concentration = jax.jit(field.concentration)
    y = np.linspace(-200, 300, 20_001)
    for down in (0.0, 10.0, 50.0, 100.0):
        points = np.stack([np.full_like(y, 16.0 + down), y], axis=-1)
        smell = np.asarray(concentration(state, jnp.asarray(points)), float)
        width = 2.0 + 0.05 * down
        centre = (smell * y).sum() / smell.sum()
        assert math.sqrt((smell * (y - centre) ** 2).sum() / smell.sum()) == pytest.approx(width, rel=1e-3)
        assert smell.max() == pytest.approx(2.0 / width, rel=1e-3)
        # The factor σ0/σ makes the cross-wind integral the same at every distance.
        assert smell.sum() * (y[1] - y[0]) == pytest.approx(2.0 * math.sqrt(2 * math.pi), rel=1e-3)
        assert centre == pytest.approx(64 + float(field.centre(state, jnp.asarray(down))), abs=1e-2)


def test_zero_upwind_and_maximal_at_the_source() -> None:
    field = Meander()
    state = field.init(random.key(0))
    np.testing.assert_array_equal(field.concentration(state, jnp.array([[15.9, 64.0], [0.0, 60.0]])), [0, 0])
    assert float(field.concentration(state, jnp.array([16.0, 64.0]))) == pytest.approx(1.0)


def test_the_centre_line_moves_downwind_at_the_speed_of_the_wind() -> None:
    field = Meander(anchor=0.0, speed=3.0, dt=0.5)
    state = field.init(random.key(1))
    later = state
    for step in range(4):
        later = field.advance(random.key(10 + step), later)
    down = jnp.linspace(0.0, 60.0, 25)
    distance = 4 * 0.5 * 3.0
    np.testing.assert_allclose(field.centre(later, down + distance), field.centre(state, down), rtol=1e-4, atol=1e-4)


def test_the_anchor_fixes_the_plume_at_its_source() -> None:
    free, held = Meander(anchor=0.0), Meander(anchor=10.0)
    state = free.init(random.key(1))
    down = jnp.array([0.0, 10.0, 90.0])
    expected = np.asarray(free.centre(state, down)) * [0, 0.5, 0.9]
    np.testing.assert_allclose(held.centre(state, down), expected, atol=1e-4)


def test_the_process_at_the_source_has_its_spread_and_correlation_time() -> None:
    field = Meander(spread=5.0, time_constant=8.0, history=32)

    def move(state: Any, key: Any) -> tuple[Any, Any]:
        state = field.advance(key, state)
        return state, state[0]

    _, values = jax.lax.scan(move, field.init(random.key(0)), random.split(random.key(1), 60_000))
    values = np.asarray(values)
    assert values.std() == pytest.approx(5.0, rel=0.06)
    assert (values[8:] * values[:-8]).mean() / values.var() == pytest.approx(math.exp(-1), abs=0.05)


def test_the_initial_history_is_stationary() -> None:
    field = Meander(spread=5.0, time_constant=8.0, history=32)
    first = np.asarray(jax.vmap(field.init)(random.split(random.key(2), 20_000)))
    np.testing.assert_allclose(first.std(axis=0), 5.0, rtol=0.04)
    for lag in (1, 8, 31):
        assert np.corrcoef(first[:, 0], first[:, lag])[0, 1] == pytest.approx(math.exp(-lag / 8), abs=0.03)


def test_another_direction_rotates_the_plume() -> None:
    straight, turned = Meander((0.0, 0.0)), Meander((0.0, 0.0), direction=2.0)
    state = straight.init(random.key(0))
    points = np.random.default_rng(0).uniform(-20, 60, (40, 2))
    rotation = np.array([[math.cos(2), -math.sin(2)], [math.sin(2), math.cos(2)]])
    np.testing.assert_allclose(
        turned.concentration(state, jnp.asarray(points @ rotation.T)),
        straight.concentration(state, jnp.asarray(points)),
        atol=1e-4,
    )
    np.testing.assert_allclose(turned.wind(state, jnp.zeros(2)), rotation @ [2.0, 0.0], atol=1e-6)


def test_the_default_history_reaches_across_the_arena() -> None:
    field = Meander()
    assert (field.history - 1) * np.asarray(field.dt) * np.asarray(field.speed) >= 128 - field.source[0]


@pytest.mark.parametrize(
    ("name", "value"), [("sigma", 0.0), ("speed", 0.0), ("spread", -1.0), ("time_constant", math.nan), ("history", 1)]
)
def test_invalid_numbers_are_rejected(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        Meander(**{name: value})
