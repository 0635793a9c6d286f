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


def age_variance(age: Any, gust: float, tau: float) -> Any:
    """Taylor (1921): the variance of the displacement by an Ornstein–Uhlenbeck velocity."""
    return 2 * gust**2 * tau * (age - tau * (1 - np.exp(-age / tau)))


def numpy_displacement(rng: np.random.Generator, num: int, seconds: float, gust: float, tau: float) -> np.ndarray:
    """The displacement by an Ornstein–Uhlenbeck velocity, integrated by the trapezoidal rule in small steps."""
    dt = 0.01
    velocity, moved = rng.normal(0, gust, num), np.zeros(num)
    for _ in range(round(seconds / dt)):
        after = velocity + dt / tau * -velocity + gust * math.sqrt(2 * dt / tau) * rng.normal(size=num)
        moved += dt * (velocity + after) / 2
        velocity = after
    return moved


@pytest.mark.parametrize("dt", [0.02, 0.5, 3.0])
def test_the_centre_line_spreads_as_in_taylor_for_any_step(dt: float) -> None:
    """At the start, and after steps; the same for steps of any length."""
    field = Meander(gust=0.5, time_constant=2.0, dt=dt, speed=1.0, history=round(12 / dt) + 2)
    keys = random.split(random.key(0), 3000)
    first = jax.jit(jax.vmap(field.init))(keys)
    later = jax.jit(
        jax.vmap(
            lambda state, key: jax.lax.fori_loop(0, 4, lambda i, s: field.advance(random.fold_in(key, i), s), state)
        )
    )(first, random.split(random.key(1), 3000))
    down = jnp.array([3.0, 6.0, 12.0])
    expected = np.sqrt(age_variance(np.array([3.0, 6.0, 12.0]), 0.5, 2.0))
    for states in (first, later):
        centres = np.asarray(jax.vmap(lambda state: field.centre(state, down))(states))
        np.testing.assert_allclose(centres.std(0), expected, rtol=0.05)
    loop = numpy_displacement(np.random.default_rng(0), 3000, 6.0, 0.5, 2.0)
    assert loop.std() == pytest.approx(expected[1], rel=0.05)


def test_the_plume_is_smooth_and_starts_at_the_source() -> None:
    """Neighbouring slopes of the centre line differ by little, as those of an integrated velocity do."""
    field = Meander(dt=0.25, history=400)
    states = jax.jit(jax.vmap(field.init))(random.split(random.key(0), 200))
    centres = np.asarray(states.path[:, :1] - states.path)
    slopes = np.diff(centres, axis=1) / (0.25 * 2.0)
    assert not centres[:, 0].any()
    assert slopes.std() == pytest.approx(0.25, rel=0.1)  # gusts of a quarter of the wind
    assert np.diff(slopes, axis=1).std() == pytest.approx(0.25 * math.sqrt(2 / 3 * 0.25 / 15 * 2), rel=0.1)


def test_the_cross_wind_is_sensed_and_carries_the_plume() -> None:
    field = Meander(dt=0.1)
    state = field.init(random.key(0))
    before = np.asarray(field.wind(state, jnp.zeros(2)))
    after = field.advance(random.key(1), state)
    wind = (before + np.asarray(field.wind(after, jnp.zeros(2)))) / 2
    assert before[1] == pytest.approx(float(state.cross_wind))
    down = jnp.linspace(0.0, 15.0, 40)
    moved = np.asarray(field.centre(after, down + 0.2) - field.centre(state, down))
    np.testing.assert_allclose(moved, 0.1 * wind[1], atol=2e-3)
    assert wind[0] == pytest.approx(2.0)


def test_the_cross_wind_has_its_spread_and_correlation_time() -> None:
    field = Meander(gust=0.5, time_constant=8.0, history=4)

    def move(state: Any, key: Any) -> tuple[Any, Any]:
        state = field.advance(key, state)
        return state, state.cross_wind

    _, values = jax.lax.scan(move, field.init(random.key(0)), random.split(random.key(1), 60_000))
    values = np.asarray(values)
    assert values.std() == pytest.approx(0.5, rel=0.06)
    assert (values[8:] * values[:-8]).mean() / values.var() == pytest.approx(math.exp(-1), abs=0.05)


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
    wind = [2.0, float(state.cross_wind)]
    np.testing.assert_allclose(turned.wind(state, jnp.zeros(2)), rotation @ wind, atol=1e-6)


def test_the_default_history_reaches_across_the_arena() -> None:
    field = Meander()
    assert (field.history - 1) * np.asarray(field.dt) * np.asarray(field.speed) >= 128 - field.source[0]


@pytest.mark.parametrize(
    ("name", "value"), [("sigma", 0.0), ("speed", 0.0), ("gust", -1.0), ("time_constant", math.nan), ("history", 1)]
)
def test_invalid_numbers_are_rejected(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        Meander(**{name: value})
