"""Filaments against the equations of Farrell et al."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tropism.errors import ValidationError
from tropism.plume.fields import Filaments, Turbulence
from tropism.plume.fields.filaments import FilamentsState

STEADY = Filaments(air=Turbulence(gain=0.0, columns=3, rows=3), max_puffs=600, warmup=0)
AMOUNT = 8.3e8


@eqx.filter_jit
def _run(field: Filaments, key: Any, num: int) -> Any:
    start_key, steps_key = random.split(key)
    keys = random.split(steps_key, num)
    return jax.lax.scan(lambda s, k: (field.advance(k, s), s.oldest), field.init(start_key), keys)


def run(field: Filaments, key: Any, num: int = 500) -> Any:
    return _run(jax.tree.map(jnp.asarray, field), key, num)


def active_puffs(state: FilamentsState) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    alive = np.asarray(state.squared) > 0
    x, y, squared = (np.asarray(part, float)[alive] for part in (state.x, state.y, state.squared))
    return x, y, squared


def with_puffs(x: Any, y: Any, squared: Any) -> FilamentsState:
    air = STEADY.air.init(random.key(0))
    x, y, squared = jnp.asarray(x), jnp.asarray(y), jnp.asarray(squared)
    return FilamentsState(air, x, y, jnp.zeros_like(x), squared, jnp.zeros((), jnp.int32))


@pytest.mark.slow
def test_births_are_poisson() -> None:
    _, heads = run(STEADY, random.key(0))
    births_per_step = np.diff(np.asarray(heads, int)) % STEADY.max_puffs
    assert births_per_step.mean() == pytest.approx(1.0, abs=4 / math.sqrt(500))  # 10 a second, steps of 0.1 s
    assert births_per_step.var() == pytest.approx(1.0, rel=0.25)


def test_puffs_follow_the_wind_and_their_squared_radius_grows_linearly() -> None:
    field = eqx.tree_at(lambda f: f.scatter, STEADY, 0.0)
    state, _ = run(field, random.key(0))
    x, y, squared = active_puffs(state)
    age = x - 5.0  # at 1 m/s
    assert age.max() == pytest.approx(50.0, abs=1.0)
    np.testing.assert_allclose(squared, 0.001 + 0.001 * age, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(y, 0, atol=1e-3)


@pytest.mark.slow
def test_puffs_scatter_as_in_the_paper_for_any_step() -> None:
    """(2 N(0, 1)) dt per step of 0.01 s adds up to 2² · 0.01 m² per second, for any step."""
    states = jax.jit(jax.vmap(lambda key: _run(STEADY, key, 500)[0]))(random.split(random.key(1), 12))
    x, y, squared = active_puffs(states)
    age = (squared - 0.001) / 0.001
    old = age > 1
    assert (y[old] ** 2 / (0.04 * age[old])).mean() == pytest.approx(1.0, abs=0.06)
    assert ((x[old] - 5 - age[old]) ** 2 / (0.04 * age[old])).mean() == pytest.approx(1.0, abs=0.06)
    z = np.asarray(states.z, float)[np.asarray(states.squared) > 0]
    assert (z[old] ** 2 / (0.04 * age[old])).mean() == pytest.approx(1.0, abs=0.06)


def numpy_mean(seed: int, point: float, seconds: float, vertical: bool) -> float:
    """The mean concentration on the axis of a plume in a steady wind, by a plain loop in steps of 0.02 s."""
    rng, dt, total, samples = np.random.default_rng(seed), 0.02, 0.0, 0
    puffs, squared = np.zeros((0, 3)), np.zeros(0)
    for step in range(round(seconds / dt)):
        born = rng.poisson(10 * dt)
        puffs = np.concatenate([puffs, np.tile([5.0, 0.0, 0.0], (born, 1))])
        squared = np.append(squared, np.full(born, 0.001)) + 0.001 * dt
        walk = 2.0 * 0.1 * math.sqrt(dt) * rng.normal(size=puffs.shape)
        puffs = puffs + walk * [1.0, 1.0, vertical] + [dt, 0.0, 0.0]
        near = puffs[:, 0] < 30
        puffs, squared = puffs[near], squared[near]
        if step * dt > 25 and step % 5 == 0:
            distance = ((puffs - [point, 0.0, 0.0]) ** 2).sum(1)
            total += (AMOUNT / (math.sqrt(8 * math.pi**3) * squared**1.5) * np.exp(-distance / (2 * squared))).sum()
            samples += 1
    return total / samples


@pytest.mark.slow
@pytest.mark.parametrize("vertical", [True, False])
def test_the_mean_concentration_is_that_of_a_plain_loop(vertical: bool) -> None:
    """Three-dimensional puffs have a much lower mean than puffs that stay in the plane."""
    field = dataclasses.replace(STEADY, vertical=vertical, warmup=40, max_puffs=400)
    points = jnp.array([[10.0, 0.0], [15.0, 0.0]])

    def mean(key: Any) -> Any:
        def step(state: Any, step_key: Any) -> tuple[Any, Any]:
            state = field.advance(step_key, state)
            return state, field.concentration(state, points)

        return jax.lax.scan(step, field.init(key), random.split(key, 400))[1].mean(0)

    ours = np.asarray(jax.jit(jax.vmap(mean))(random.split(random.key(0), 60)), float)
    for index, point in enumerate((10.0, 15.0)):
        loops = [numpy_mean(seed, point, 85.0, vertical) for seed in range(8)]
        error = math.hypot(ours[:, index].std() / math.sqrt(60), np.std(loops) / math.sqrt(8))
        assert error < 0.1 * ours[:, index].mean()
        assert ours[:, index].mean() == pytest.approx(np.mean(loops), abs=4 * error)


def test_the_amount_in_a_puff_is_conserved() -> None:
    """In the plane of a puff C integrates to Q/(√2π R): the rest is a Gaussian in z."""
    axis = np.linspace(-3, 3, 601)
    points = jnp.asarray(np.stack(np.meshgrid(axis, axis), axis=-1))
    for squared in (0.001, 0.02, 0.09):
        smell = STEADY.concentration(with_puffs([0.0], [0.0], [squared]), points)
        total = float(np.asarray(smell, float).sum() * 0.01**2)
        assert total * math.sqrt(2 * math.pi * squared) == pytest.approx(AMOUNT, rel=1e-3)


def test_concentration_is_the_sum_over_active_puffs() -> None:
    rng = np.random.default_rng(0)
    x, y, squared = rng.uniform(0, 2, 40), rng.uniform(0, 2, 40), rng.uniform(0.001, 0.1, 40)
    squared[::5] = 0
    points = rng.uniform(0, 2, (60, 2))
    expected = np.zeros(60)
    for index, (px, py) in enumerate(points):
        for puff in np.nonzero(squared)[0]:
            distance = (px - x[puff]) ** 2 + (py - y[puff]) ** 2
            peak = AMOUNT / (math.sqrt(8 * math.pi**3) * squared[puff] ** 1.5)
            expected[index] += peak * math.exp(-distance / (2 * squared[puff]))
    smell = STEADY.concentration(with_puffs(x, y, squared), jnp.asarray(points))
    np.testing.assert_allclose(smell, expected, rtol=2e-4, atol=1.0)


def test_a_puff_that_leaves_the_arena_is_removed() -> None:
    air = Turbulence(gain=0.0, columns=3, rows=3, mean=(1.0, 1.0))
    field = Filaments(air=air, max_puffs=3, rate=0.0, scatter=0.0)
    state = with_puffs([99.95, 50.0, 50.0], [0.0, 49.999, 0.0], [0.01, 0.01, 0.01])
    state = eqx.tree_at(lambda s: s.air, state, air.init(random.key(0)))
    after = jax.jit(field.advance)(random.key(0), state)
    np.testing.assert_array_equal(np.asarray(after.squared) > 0, [False, False, True])


def test_the_plume_is_developed_only_after_a_warm_up() -> None:
    assert not np.any(STEADY.init(random.key(0)).squared)
    field = Filaments(air=Turbulence(gain=0.0, columns=3, rows=3), max_puffs=1000, warmup=200)
    x, _, _ = active_puffs(field.init(random.key(0)))
    assert x.size == pytest.approx(950, abs=4 * 31)
    counts, _ = np.histogram(x, bins=[10, 30, 50, 70, 90])
    np.testing.assert_allclose(counts, 200, atol=4 * 14)


def test_long_warm_up_steps_give_the_same_plume_as_short_ones() -> None:
    coarse = eqx.tree_at(lambda f: f.dt, STEADY, 0.5)
    long_steps, _ = run(coarse, random.key(3), 100)
    short_steps, _ = run(STEADY, random.key(4))
    (x, y, squared), (_, y2, squared2) = active_puffs(long_steps), active_puffs(short_steps)
    assert x.size == pytest.approx(500, abs=90)
    for spread, age in ((y, squared), (y2, squared2)):
        assert (spread**2 / (40 * age)).mean() == pytest.approx(1.0, abs=0.25)


@pytest.mark.slow
def test_wind_and_plume_have_the_statistics_of_pompy() -> None:
    """Against pompy 0.1.1 in the plane at a step of 0.05 s, with half the births and the noise of the paper's 0.01 s:
    its wind over 12 × 1200 s, its plume over 1200 s. Contacts are above 1e6, over 25 points across the wind, 3 to 30 m
    downwind."""
    field = Filaments(rate=5.0, max_puffs=600, vertical=False)
    across = jnp.linspace(-6.0, 6.0, 25)
    points = jnp.stack(jnp.meshgrid(jnp.array([8.0, 12.0, 20.0, 35.0]), across, indexing="ij"), axis=-1)

    def measure(state: FilamentsState) -> tuple[Any, Any, Any]:
        age = (state.squared - 0.001) / 0.001
        middle_aged = (age > 15) & (age < 20)
        wind = field.wind(state, jnp.array([50.0, 0.0]))
        contact = (field.concentration(state, points) > 1e6).mean(axis=1)
        return wind, contact, jnp.stack([(state.y**2 * middle_aged).sum(), middle_aged.sum()])

    def second(state: Any, key: Any) -> tuple[Any, Any]:
        state = jax.lax.scan(lambda s, k: (field.advance(k, s), None), state, random.split(key, 10))[0]
        return state, measure(state)

    def record(key: Any) -> Any:
        return jax.lax.scan(second, field.init(key), random.split(key, 400))[1]

    wind, contact, spread = map(np.asarray, jax.jit(jax.vmap(record))(random.split(random.key(0), 16)))
    np.testing.assert_allclose(wind.mean(axis=(0, 1)), [1.198, 0.0], atol=0.12)
    np.testing.assert_allclose(wind.std(axis=(0, 1)), [0.309, 0.442], rtol=0.2)
    np.testing.assert_allclose(contact.mean(axis=(0, 1)), [0.088, 0.113, 0.120, 0.119], rtol=0.15)
    assert math.sqrt(spread[..., 0].sum() / spread[..., 1].sum()) == pytest.approx(8.0, rel=0.15)


@pytest.mark.parametrize(
    ("name", "value"),
    [("rate", -1.0), ("radius", 0.0), ("amount", math.nan), ("dt", 0.0), ("max_puffs", 0), ("warmup", -1)],
)
def test_invalid_numbers_are_rejected(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        Filaments(**{name: value})
