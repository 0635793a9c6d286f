"""Sensors: left and right, signs of the wind, clocks and rates compared with NumPy, spaces contain observations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from tests.plume.places import ARENA, agent, blocking, scene

from tropism.core.spaces import Box, Dict
from tropism.errors import ValidationError
from tropism.plume.fields import Gaussian
from tropism.plume.scene import AgentPose, Arena, Scene
from tropism.plume.sensors import (
    Antennae,
    Concat,
    Concentration,
    DictSensor,
    FullField,
    Hits,
    Odour,
    Position,
    Sensor,
    SinceWhiff,
    SourcePosition,
    WhiffRate,
    WindSense,
    array_of,
    dict_sensor,
)
from tropism.plume.wind import Constant

KEY = random.key(0)
SHAPE = ARENA.shape
HEADINGS = np.arange(32) * 360 / 32


def sense(sensor: Sensor, here: Scene, key: Any = KEY) -> Any:
    return np.asarray(jax.jit(lambda key, here: sensor.sense(key, sensor.start(SHAPE), here)[0])(key, here))


@pytest.mark.parametrize("bearing", [0, 90, 180, 270])  # where the source is, seen from the agent
def test_left_is_left_and_front_is_front(bearing: float) -> None:
    source = 64 + 10 * np.array([np.cos(np.deg2rad(bearing)), np.sin(np.deg2rad(bearing))])
    field = Gaussian((float(source[0]), float(source[1])), sigma=5.0)

    def sense_at(heading: Any) -> Any:
        here = scene(agent(64.0, 64.0, heading), field)
        return Antennae((90.0, -90.0)).sense(KEY, (), here)[0], array_of(4).sense(KEY, (), here)[0]

    sides, around = jax.jit(jax.vmap(sense_at))(jnp.asarray(HEADINGS))
    turned = np.deg2rad(bearing - HEADINGS)  # the source's angle from straight ahead, positive to the left
    np.testing.assert_array_equal(_sign(np.sin(turned)), _sign(sides[:, 0] - sides[:, 1]))
    np.testing.assert_array_equal(_sign(np.cos(turned)), _sign(around[:, 0] - around[:, 2]))
    np.testing.assert_allclose(around[:, 1], sides[:, 0], rtol=1e-4)  # the second of four is the left one


def _sign(difference: Any) -> Any:
    return np.sign(np.where(np.abs(difference) < 1e-5, 0, difference))


def test_antennae_sense_at_their_tips() -> None:
    here = scene(agent(60.0, 64.0, 30.0))
    for angle in (0.0, 45.0, -100.0):
        tip = np.array([60, 64]) + 3 * np.array([np.cos(np.deg2rad(30 + angle)), np.sin(np.deg2rad(30 + angle))])
        expected = np.exp(-((tip - 64) ** 2).sum() / 800)
        np.testing.assert_allclose(sense(Antennae((angle,), reach=3.0), here), [expected], rtol=1e-5)


@pytest.mark.parametrize("heading", [0.0, 37.0, 90.0, 200.0])
def test_allocentric_egocentric_and_apparent_wind(heading: float) -> None:
    wind, velocity, dt = np.array([0.5, -1.0]), np.array([0.02, 0.03]), 0.04
    here = scene(agent(5.0, 5.0, heading, velocity), Gaussian(flow=Constant((0.5, -1.0))))
    angle = np.deg2rad(heading)
    to_body = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])  # forward, left
    sense_at = wind - velocity / dt
    np.testing.assert_allclose(sense(WindSense(), here), wind, rtol=1e-6)
    np.testing.assert_allclose(sense(WindSense(egocentric=True), here), to_body @ wind, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sense(WindSense(apparent=True, dt=dt), here), sense_at, rtol=1e-5, atol=1e-6)
    both = WindSense(egocentric=True, apparent=True, dt=dt)
    np.testing.assert_allclose(sense(both, here), to_body @ sense_at, rtol=1e-5, atol=1e-6)


def test_wind_from_ahead_is_negative_and_from_the_right_blows_to_the_left() -> None:
    field = Gaussian(flow=Constant((-1.0, 0.0)))
    np.testing.assert_allclose(sense(WindSense(egocentric=True), scene(agent(5, 5, 0), field)), [-1, 0], atol=1e-6)
    np.testing.assert_allclose(sense(WindSense(egocentric=True), scene(agent(5, 5, 90), field)), [0, 1], atol=1e-6)


def test_wind_is_clipped_at_its_limit() -> None:
    here = scene(agent(5, 5), Gaussian(flow=Constant((3.0, -0.5))))
    np.testing.assert_allclose(sense(WindSense(limit=1.0), here), [1.0, -0.5])
    assert WindSense(limit=1.0).space(SHAPE) == Box(-1, 1, (2,))


def test_concentration_is_clipped_and_odour_has_a_threshold() -> None:
    here = scene(agent(64, 74))
    smell = np.exp(-100 / 800)
    np.testing.assert_allclose(sense(Concentration(), here), [smell], rtol=1e-5)
    np.testing.assert_allclose(sense(Concentration(limit=0.5), here), [0.5])
    assert sense(Odour(threshold=smell - 0.01), here) == [1]
    assert sense(Odour(threshold=smell + 0.01), here) == [0]


def test_hits_are_poisson() -> None:
    here = scene(agent(64, 74))
    draw = jax.jit(jax.vmap(lambda key: Hits(rate=5.0).sense(key, (), here)[0][0]))
    hits = np.asarray(draw(random.split(KEY, 20_000)))
    mean = 5 * np.exp(-100 / 800)
    assert abs(hits.mean() - mean) < 4 * np.sqrt(mean / 20_000)
    assert abs(hits.var() - mean) < 0.05 * mean
    np.testing.assert_array_equal(hits, np.round(hits))


def test_hits_have_a_limit() -> None:
    assert sense(Hits(rate=500.0, limit=3.0), scene(agent(64, 74))) == [3]


def walk(sensor: Sensor, xs: Any) -> Any:
    """The observations along a line through the source."""

    def step(memory: Any, x: Any) -> Any:
        obs, memory = sensor.sense(KEY, memory, scene(agent(x, 64.0)))
        return memory, obs[0]

    return np.asarray(jax.lax.scan(step, sensor.start(SHAPE), jnp.asarray(xs))[1])


def test_whiff_clock_and_rate_agree_with_a_loop() -> None:
    xs = np.random.default_rng(0).uniform(20, 108, 200)
    whiffs = np.exp(-((xs - 64) ** 2) / 800) >= 0.6
    since, clock, was, rate, rates = 50.0, [], False, 0.0, []
    for whiff in whiffs:
        since = 0.0 if whiff else min(since + 1, 50.0)
        rate += ((whiff and not was) - rate) / 8.0
        was = whiff
        clock.append(since)
        rates.append(rate)
    np.testing.assert_array_equal(walk(SinceWhiff(threshold=0.6, limit=50.0), xs), clock)
    np.testing.assert_allclose(walk(WhiffRate(threshold=0.6, memory_steps=8.0), xs), rates, rtol=1e-5)
    assert walk(SinceWhiff(threshold=0.6, limit=50.0), [0.0])[0] == 50


def test_positions_are_cells_of_the_raster() -> None:
    here = scene(agent(3, 120))
    np.testing.assert_array_equal(sense(Position(), here), [3, 120])
    np.testing.assert_array_equal(sense(SourcePosition(), here), [64, 64])
    shifted = Arena((-2.0, -1.0), (2.0, 1.0), None, (21, 41))
    np.testing.assert_array_equal(sense(Position(), scene(agent(-2.0, 1.0), arena=shifted)), [0, 20])


def test_the_full_field_has_rows_of_y() -> None:
    field = sense(FullField(), scene(agent(0, 0), Gaussian((10.0, 100.0), 5.0)))
    assert np.unravel_index(field.argmax(), field.shape) == (100, 10)


def test_concat_is_one_vector_and_dict_sensor_a_dict() -> None:
    here = scene(agent(60, 64), Gaussian(flow=Constant((0.25, 0.5))))
    smell = np.exp(-16 / 800)
    together = Concat((Concentration(), WindSense(limit=2.0), Position()))
    np.testing.assert_allclose(sense(together, here), [smell, 0.25, 0.5, 60, 64], rtol=1e-5)
    assert sense(together, here).dtype == np.float32
    expected = Box(np.array([0, -2, -2, 0, 0.0]), np.array([1, 2, 2, 127, 127.0]))
    assert together.space(SHAPE) == expected
    both = dict_sensor(nose=Concentration(), clock=SinceWhiff())
    obs, memory = both.sense(KEY, both.start(SHAPE), here)
    assert list(obs) == ["nose", "clock"]
    assert float(obs["clock"][0]) == 0
    assert jax.tree.map(float, memory) == ((), 0.0)
    assert both.space(SHAPE) == Dict({"nose": Box(0, 1, (1,)), "clock": Box(0, 1000, (1,))})


@pytest.mark.slow
def test_random_sensors_have_independent_keys() -> None:
    six = sense(Concat((Hits(50.0),) * 6), scene(agent(60, 64)))
    assert len(set(six.tolist())) > 2


def test_concat_accepts_only_vectors() -> None:
    with pytest.raises(ValidationError, match="vector"):
        Concat((Concentration(), FullField())).space(SHAPE)
    with pytest.raises(ValidationError, match="count"):
        array_of(0)


EVERY: list[Sensor] = [
    Concentration(limit=0.7),
    Odour(),
    Hits(rate=300.0, limit=20.0),
    Antennae((45.0, -45.0)),
    array_of(5),
    WindSense(egocentric=True, apparent=True, limit=1.0),
    SinceWhiff(limit=5.0),
    WhiffRate(),
    Position(),
    SourcePosition(),
    FullField(),
    Concat((Concentration(), WindSense(), Position())),
    DictSensor(("a", "b"), (Odour(), Position())),
]


@pytest.mark.parametrize("sensor", EVERY, ids=lambda sensor: type(sensor).__name__)
@pytest.mark.parametrize("x64", [False, True])
def test_the_space_contains_every_observation(sensor: Sensor, x64: bool) -> None:
    with jax.enable_x64(x64):
        arena = blocking((10, 10))
        field = Gaussian((64.0, 64.0), 20.0, Constant((2.0, -3.0)))

        @jax.jit
        def step(memory: Any, pose: AgentPose) -> Any:
            return sensor.sense(KEY, memory, scene(pose, field, arena))

        memory = sensor.start(SHAPE)
        for place in ((0, 0), (10, 10), (64, 64), (127, 0), (9.6, 127)):
            obs, after = step(memory, agent(*place, 77.0, (1.0, -2.0)))
            assert sensor.space(SHAPE).contains(jax.tree.map(np.asarray, obs))
            assert jax.tree.map(_kind, after) == jax.tree.map(_kind, memory)
            memory = after


def _kind(leaf: Any) -> Any:
    return jnp.shape(leaf), jnp.asarray(leaf).dtype.name


@pytest.mark.slow
@pytest.mark.parametrize("sensor", EVERY, ids=lambda sensor: type(sensor).__name__)
def test_spaces_can_be_built_from_traced_numbers(sensor: Sensor) -> None:
    sample = sensor.space(SHAPE).sample(KEY)
    assert jax.jit(lambda sensor: sensor.space(SHAPE).contains(sample))(sensor)
