"""Receptors against NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from tests.plume.places import ARENA, agent, scene

from tropism.core.spaces import Box
from tropism.errors import ValidationError
from tropism.plume.receptors import Adapting, History, Noisy, Saturating
from tropism.plume.sensors import Concat, Concentration, Odour, Position, Sensor, WindSense, dict_sensor

SHAPE = ARENA.shape
XS = np.linspace(20, 100, 60)
SMELLS = np.exp(-((XS - 64) ** 2) / 800)


def walk(sensor: Sensor, xs: Any = XS, key: Any = None) -> Any:
    keys = random.split(random.key(0) if key is None else key, len(xs))

    def step(memory: Any, now: Any) -> Any:
        obs, memory = sensor.sense(now[1], memory, scene(agent(now[0], 64.0)))
        return memory, obs

    return np.asarray(jax.lax.scan(step, sensor.start(SHAPE), (jnp.asarray(xs), keys))[1])


def test_noise_has_its_deviation_and_stays_within_bounds() -> None:
    half = 64 + np.sqrt(-800 * np.log(0.5))
    noisy = walk(Noisy(Concentration(), deviation=0.05), np.full(20_000, half))
    np.testing.assert_allclose(noisy.mean(), 0.5, atol=4 * 0.05 / np.sqrt(20_000))
    np.testing.assert_allclose(noisy.std(), 0.05, rtol=0.03)
    wild = walk(Noisy(Concentration(), deviation=3.0), np.full(200, half))
    assert wild.min() == 0
    assert wild.max() == 1


def test_saturation_is_michaelis_menten() -> None:
    np.testing.assert_allclose(walk(Saturating(Concentration(), half=0.3))[:, 0], SMELLS / (SMELLS + 0.3), rtol=1e-5)
    strong = Saturating(Concentration(limit=1e6), half=0.1)
    assert strong.space(SHAPE) == Box(0, 1, (1,))
    assert walk(Saturating(Noisy(WindSense(), deviation=5.0), half=0.1)).min() >= 0


def test_adaptation_follows_the_background() -> None:
    background, expected = 0.0, []
    for smell in SMELLS:
        background += (smell - background) / 10
        expected.append(smell / (smell + 0.05 + background))
    adapted = walk(Adapting(Concentration(), time_constant=10.0, half=0.05))[:, 0]
    np.testing.assert_allclose(adapted, expected, rtol=1e-5)
    steady = walk(Adapting(Concentration(), time_constant=10.0, half=1e-6), np.full(300, 64.0))[:, 0]
    assert steady[0] > 0.9
    np.testing.assert_allclose(steady[-1], 0.5, rtol=1e-4)


def test_history_is_the_last_few_oldest_first() -> None:
    frames = walk(History(Concentration(), length=3))
    assert frames.shape == (60, 3, 1)
    padded = np.concatenate([[0, 0], SMELLS])
    np.testing.assert_allclose(frames[..., 0], [padded[i : i + 3] for i in range(60)], rtol=1e-5)


def test_history_of_any_box() -> None:
    assert History(Position(), 2).space(SHAPE) == Box(0, 127, (2, 2), np.int32)
    assert walk(History(Position(), 2)).dtype == np.int32
    assert History(WindSense(), 2).space(SHAPE) == Box(-np.inf, np.inf, (2, 2))
    with pytest.raises(ValidationError, match="length"):
        History(Concentration(), 0)


def test_receptors_can_be_nested() -> None:
    sensor = History(Saturating(Noisy(Concat((Concentration(), Odour())), 0.1), 0.2), 4)
    seen = walk(sensor)
    assert seen.shape == (60, 4, 2)
    assert all(sensor.space(SHAPE).contains(obs) for obs in seen)
    sample = sensor.space(SHAPE).sample(random.key(0))
    assert jax.jit(lambda sensor: sensor.space(SHAPE).contains(sample))(sensor)


def test_a_dict_is_rejected() -> None:
    with pytest.raises(ValidationError, match="Box"):
        Noisy(dict_sensor(nose=Concentration())).space(SHAPE)
