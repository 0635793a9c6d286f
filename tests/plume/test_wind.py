"""Winds compared with their definitions."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tropism.errors import ValidationError
from tropism.plume.wind import Constant, Switching, SwitchOnce, Wandering, Wind

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


def test_switch_once_turns_45_degrees_within_the_second_second() -> None:
    turned = np.asarray(jax.vmap(lambda key: angles_traced(SwitchOnce(), key, 75))(random.split(random.key(0), 400)))
    time = DT * np.arange(1, 76)
    np.testing.assert_allclose(turned[:, time < 0.99], 0, atol=1e-6)
    np.testing.assert_allclose(turned[:, time > 2.01], math.pi / 4, atol=1e-6)
    when = (turned == 0).sum(1) * DT
    assert when.mean() == pytest.approx(1.5, abs=0.06)
    assert when.std() == pytest.approx(1 / math.sqrt(12), rel=0.1)


def test_the_past_of_a_wind_that_has_turned_contains_the_turn() -> None:
    wind = SwitchOnce(earliest=-1.0, latest=-1.0)
    past = np.asarray(wind.past(random.key(0), wind.init(random.key(1)), 0.1, 30))
    np.testing.assert_allclose(past[:9, 1], 0.5 * math.sin(math.pi / 4), atol=1e-6)
    np.testing.assert_allclose(past[11:, 1], 0, atol=1e-6)


def numpy_switching(rng: np.random.Generator, seconds: float, dt: float) -> np.ndarray:
    """The directions of a wind that switches every 3 ± 0.3 s by N(0, 30°), clipped to ±60°."""
    time, direction, count = 0.0, 0.0, 1
    due, directions = 3 + rng.uniform(-0.3, 0.3), []
    while time < seconds:
        if time >= due:
            direction = np.clip(rng.normal(0, math.pi / 6), -math.pi / 3, math.pi / 3)
            count += 1
            due = 3 * count + rng.uniform(-0.3, 0.3)
        directions.append(direction)
        time += dt
    return np.array(directions)


def correlations(directions: np.ndarray, lags: Any) -> list[float]:
    return [float(np.corrcoef(directions[:, 0], directions[:, lag])[0, 1]) for lag in lags]


def test_a_switching_wind_starts_in_the_middle_of_a_long_simulation() -> None:
    """Past and future directions have the spread and the correlations of a plain loop."""
    dt, num, lags = 0.1, 60, (10, 20, 28, 40)
    rng = np.random.default_rng(0)
    loops = np.stack([numpy_switching(rng, 12 + offset, dt)[-num:] for offset in rng.uniform(0, 3, 4000)])
    wind = Switching()

    def run(key: Any) -> tuple[Any, Any]:
        start_key, past_key, steps_key = random.split(key, 3)
        velocity = wind.past(past_key, wind.init(start_key), dt, num)
        return jnp.arctan2(velocity[:, 1], velocity[:, 0]), angles_traced(wind, steps_key, num, dt)

    past, future = (np.asarray(each) for each in jax.jit(jax.vmap(run))(random.split(random.key(1), 4000)))
    assert np.abs(past).max() <= math.pi / 3 + 1e-6
    for ours in (past, future):
        np.testing.assert_allclose(ours.std(0), loops.std(), rtol=0.06)
        np.testing.assert_allclose(correlations(ours, lags), correlations(loops, lags), atol=0.06)


def test_switch_many_turns_every_3_seconds() -> None:
    many = jax.vmap(lambda key: angles_traced(Switching(), key, 750))(random.split(random.key(1), 200))
    changes = np.diff(np.asarray(many), axis=1) != 0
    assert changes.sum() / 200 == pytest.approx(10, abs=0.6)  # 30 s; a clipped draw may repeat
    gaps = np.concatenate([np.diff(np.nonzero(row)[0]) * DT for row in changes])
    assert np.abs(gaps[gaps < 4] - 3).max() <= 0.6 + DT
    assert gaps[gaps < 4].std() == pytest.approx(0.3 * math.sqrt(2 / 3), rel=0.1)


def angles_traced(wind: Wind, key: Any, num: int, dt: float = DT) -> Any:
    def move(state: Any, step_key: Any) -> tuple[Any, Any]:
        state = wind.advance(step_key, state, dt)
        velocity = wind.velocity(state)
        return state, jnp.arctan2(velocity[1], velocity[0])

    start_key, steps_key = random.split(key)
    return jax.lax.scan(move, wind.init(start_key), random.split(steps_key, num))[1]


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


def test_means_are_those_of_long_simulations() -> None:
    winds: list[Wind] = [Constant((0.5, -0.25)), Switching(direction=0.3), Wandering(direction=1.0, spread=0.3)]
    for wind in winds:
        turned = angles(wind, random.key(0), num=60_000, dt=0.2)
        speed = float(jnp.hypot(*wind.velocity(wind.init(random.key(0)))))
        expected = speed * np.array([np.cos(turned).mean(), np.sin(turned).mean()])
        np.testing.assert_allclose(wind.mean(), expected, atol=0.02 * speed)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Constant((math.nan, 0.0)), "xy"),
        (lambda: Constant((1.0, 0.0, 0.0)), "xy"),
        (lambda: Switching(speed=-1.0), "speed"),
        (lambda: Switching(interval=0.0), "interval"),
        (lambda: Switching(interval=1.0, jitter=0.6), "jitter"),
        (lambda: SwitchOnce(latest=math.inf), "latest"),
        (lambda: Wandering(time_constant=0.0), "time_constant"),
        (lambda: Wandering(spread=math.inf), "spread"),
    ],
)
def test_invalid_winds_are_rejected(make: Any, name: str) -> None:
    with pytest.raises(ValidationError) as caught:
        make()
    assert caught.value.name == name
