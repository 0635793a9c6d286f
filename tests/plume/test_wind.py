"""Winds compared with their definitions."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tropism.errors import ValidationError
from tropism.plume.wind import Constant, Switching, Wandering, Wind

DT = 0.04


def angles(wind: Wind, key: Any, num: int, dt: float = DT) -> np.ndarray:
    """The direction of the wind after each step."""

    def move(state: Any, step_key: Any) -> tuple[Any, Any]:
        state = wind.advance(step_key, state, dt)
        return state, wind.velocity(state)

    start_key, steps_key = random.split(key)
    _, velocity = jax.lax.scan(move, wind.init(start_key), random.split(steps_key, num))
    return np.arctan2(velocity[:, 1], velocity[:, 0])


def test_constant_wind_is_constant() -> None:
    wind = Constant((0.5, -0.25))
    assert wind.init(random.key(0)) == ()
    np.testing.assert_array_equal(wind.velocity(()), [0.5, -0.25])
    np.testing.assert_array_equal(Constant().velocity(()), [0, 0])
    assert Constant((0.5, -0.25)) == wind
    assert hash(Constant((0.5, -0.25))) == hash(wind)
    assert Constant((0.5, 0.0)) != wind


def test_switch_once_turns_45_degrees_at_60_seconds() -> None:
    turned = angles(Switching.once(), random.key(0), num=4000)
    time = DT * np.arange(1, 4001)
    np.testing.assert_allclose(turned[time < 59.9], 0, atol=1e-6)
    np.testing.assert_allclose(turned[time > 60.1], math.pi / 4, atol=1e-6)


def test_switch_many_turns_every_3_seconds_within_60_degrees() -> None:
    many = jax.vmap(lambda key: angles_traced(Switching.many(), key, 750))(random.split(random.key(1), 200))
    turned = np.asarray(many)
    changes = np.diff(turned, axis=1) != 0
    assert changes.sum() / 200 == pytest.approx(9, abs=1)  # 30 s, the first at 3 s; a clipped draw may repeat
    when = DT * (np.nonzero(changes)[1] + 2)
    late = (when + 1.5) % 3 - 1.5
    assert np.abs(late).max() <= 0.3 + DT
    assert late.std() == pytest.approx(0.3 / math.sqrt(3), rel=0.1)
    settled = turned[:, 100:]
    assert np.abs(settled).max() <= math.pi / 3 + 1e-6
    within = norm_clipped_deviation(math.pi / 6, math.pi / 3)
    assert settled.std() == pytest.approx(within, rel=0.05)


def angles_traced(wind: Wind, key: Any, num: int) -> Any:
    def move(state: Any, step_key: Any) -> tuple[Any, Any]:
        state = wind.advance(step_key, state, DT)
        velocity = wind.velocity(state)
        return state, jnp.arctan2(velocity[1], velocity[0])

    start_key, steps_key = random.split(key)
    return jax.lax.scan(move, wind.init(start_key), random.split(steps_key, num))[1]


def norm_clipped_deviation(deviation: float, limit: float) -> float:
    draws = np.clip(np.random.default_rng(0).normal(0, deviation, 400_000), -limit, limit)
    return float(draws.std())


def test_a_wandering_direction_has_its_spread_and_correlation_time() -> None:
    wind = Wandering(direction=1.0, spread=0.2, time_constant=2.0)
    turned = angles(wind, random.key(2), num=100_000, dt=0.1) - 1.0
    assert turned.std() == pytest.approx(0.2, rel=0.05)
    lag = 20  # 2 s
    correlation = (turned[lag:] * turned[:-lag]).mean() / turned.var()
    assert correlation == pytest.approx(math.exp(-1), abs=0.05)


def test_the_past_of_a_wandering_wind_has_the_same_distribution() -> None:
    wind = Wandering(spread=0.2, time_constant=2.0)

    def before(key: Any) -> Any:
        start_key, past_key = random.split(key)
        velocity = wind.past(past_key, wind.init(start_key), 0.1, 21)
        return jnp.arctan2(velocity[:, 1], velocity[:, 0])

    past = np.asarray(jax.vmap(before)(random.split(random.key(3), 20_000)))
    np.testing.assert_allclose(past.std(axis=0), 0.2, rtol=0.05)
    assert np.corrcoef(past[:, 0], past[:, 20])[0, 1] == pytest.approx(math.exp(-1), abs=0.03)


def test_the_past_of_a_switching_wind_is_steady() -> None:
    wind = Switching.many()
    past = wind.past(random.key(0), wind.init(random.key(1)), 0.1, 5)
    np.testing.assert_allclose(past, np.tile([0.5, 0.0], (5, 1)), atol=1e-7)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Constant((math.nan, 0.0)), "xy"),
        (lambda: Constant((1.0, 0.0, 0.0)), "xy"),
        (lambda: Switching(speed=-1.0), "speed"),
        (lambda: Switching(interval=0.0), "interval"),
        (lambda: Wandering(time_constant=0.0), "time_constant"),
        (lambda: Wandering(spread=math.inf), "spread"),
    ],
)
def test_invalid_winds_are_rejected(make: Any, name: str) -> None:
    with pytest.raises(ValidationError) as caught:
        make()
    assert caught.value.name == name
