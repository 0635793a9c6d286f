"""The plumes of PlumeNavSingh at reset and later, in each regime, against long simulations by a plain NumPy loop."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from jax import random

from tropism import make

PLUMES, DT = 24, 0.01
STRAIGHT = ((1.0, 0.0), (2.0, 0.0), (2.0, 0.1), (4.0, 0.2), (6.0, 0.0))


@dataclass
class Loop:
    """Several plumes in a constant wind, one substep of the published equations at a time."""

    rng: np.random.Generator
    keep: float

    def __post_init__(self) -> None:
        self.slots = round(2000 * self.keep + 300)  # puffs leave after 20 s
        self.x, self.y, self.radius = (np.zeros((PLUMES, self.slots), np.float32) for _ in range(3))
        self.next = np.zeros(PLUMES, int)
        self.angle = np.zeros(PLUMES)

    def step(self) -> None:
        walk = 0.5 * self.rng.standard_normal(self.y.shape, np.float32)
        self.x += np.float32(DT) * (0.5 * np.cos(self.angle)).astype(np.float32)[:, None]
        self.y += np.float32(DT) * (walk + (0.5 * np.sin(self.angle)).astype(np.float32)[:, None])
        self.radius += np.float32(0.01 * DT) * (self.radius > 0)
        self.radius[(self.x >= 10) | (self.x <= -2) | (np.abs(self.y) >= 10)] = 0
        births = self.rng.poisson(self.keep, PLUMES)
        for number in range(births.max()):
            rows = np.flatnonzero(births > number)
            slots = (self.next[rows] + number) % self.slots
            self.x[rows, slots], self.y[rows, slots], self.radius[rows, slots] = 0, 0, 0.01
        self.next = (self.next + births) % self.slots

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / DT)):
            self.step()


def measure(x: Any, y: Any, radius: Any, points: Any) -> np.ndarray:
    """For each plume: concentrations of square puffs at the points, their number, and the spread in y around x = 6."""
    x, y, radius = (np.asarray(part, float) for part in (x, y, radius))
    values: list[np.ndarray] = []
    for px, py in points:
        inside = np.maximum(np.abs(x - px), np.abs(y - py)) < radius
        values.append(np.where(inside, (0.01 / np.maximum(radius, 0.01)) ** 3, 0).sum(1))
    alive = radius > 0
    values.append(alive.sum(1))
    near = alive & (np.abs(x - 6) < 0.5)
    values.append((np.where(near, y**2, 0).sum(1) / np.maximum(near.sum(1), 1)) ** 0.5)
    return np.stack(values, 1)


def measure_bend(x: Any, y: Any, radius: Any) -> np.ndarray:
    """For each plume: the puffs on the way at 45° from the source, and the mean y of older ones."""
    x, y, alive = np.asarray(x, float), np.asarray(y, float), np.asarray(radius) > 0
    turned = alive & (np.abs(y - x) < 0.1) & (x > 0.05) & (x < 0.33)
    older = alive & (x > 1) & (x < 3)
    return np.stack([turned.sum(1), np.where(older, y, 0).sum(1) / older.sum(1)], 1)


def assert_agreement(ours: np.ndarray, loops: np.ndarray) -> None:
    """(sample, quantity) of ours, (block, quantity) of the loop: means agree, with errors that would show 10 %."""
    error = np.hypot(ours.std(0) / math.sqrt(len(ours)), loops.std(0, ddof=1) / math.sqrt(len(loops)))
    assert (3 * error < 0.1 * loops.mean(0)).all(), (error / loops.mean(0)).tolist()
    assert (np.abs(ours.mean(0) - loops.mean(0)) < 4 * error).all(), ((ours.mean(0) - loops.mean(0)) / error).tolist()


def initial_states(regime: str, keep: float, num: int, steps: int = 0) -> Any:
    """Plumes at reset, or some steps later."""
    field: Any = make("PlumeNavSingh-v0", regime=regime, keep=keep)[1].field

    def start(key: Any) -> Any:
        keys = random.split(key, steps + 1)
        return jax.lax.scan(lambda s, k: (field.advance(k, s), None), field.init(keys[0]), keys[1:])[0]

    return jax.jit(jax.vmap(start))(random.split(random.key(7), num))


@cache
def long_simulation(keep: float) -> np.ndarray:
    """Means over time of several plumes, (plume, quantity)."""
    loop = Loop(np.random.default_rng(0), keep)
    loop.run(21)
    samples: list[np.ndarray] = []
    for _ in range(round(16 / keep)):
        loop.run(0.5)
        samples.append(measure(loop.x, loop.y, loop.radius, STRAIGHT))
    return np.mean(samples, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize(("regime", "keep"), [("constant", 1.0), ("constant", 0.4), ("switch_once", 1.0)])
def test_a_plume_at_reset_is_that_of_a_long_simulation(regime: str, keep: float) -> None:
    """Before its only switch, the wind of `switch_once` is constant."""
    state = initial_states(regime, keep, round(600 / keep))
    ours = measure(state.x, state.y, state.radius, STRAIGHT)
    assert_agreement(ours, long_simulation(keep))


@pytest.mark.slow
def test_a_switched_plume_is_that_of_a_simulation_that_switches() -> None:
    """Three seconds after the start the wind has turned by 45°, 1 to 2 s ago."""
    rng = np.random.default_rng(1)
    blocks: list[np.ndarray] = []
    loop = Loop(rng, 1.0)
    loop.run(21)
    x, y, radius, following = loop.x.copy(), loop.y.copy(), loop.radius.copy(), loop.next.copy()
    for _ in range(6):
        loop.x, loop.y, loop.radius, loop.next = x.copy(), y.copy(), radius.copy(), following.copy()
        turns = rng.uniform(1, 2, PLUMES)
        for step in range(300):
            loop.angle = np.where((step + 0.5) * DT > turns, math.pi / 4, 0.0)
            loop.step()
        blocks.append(measure_bend(loop.x, loop.y, loop.radius))
    state = initial_states("switch_once", 1.0, 300, steps=75)
    assert_agreement(measure_bend(state.x, state.y, state.radius), np.mean(blocks, axis=0))
