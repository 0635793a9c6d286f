"""Puffs against the equations of Singh et al. and against a plain NumPy loop."""

import math
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tropism.errors import ValidationError
from tropism.plume.fields import Puffs
from tropism.plume.fields.puffs import PuffsState
from tropism.plume.wind import Constant, Switching, SwitchOnce, Wandering

SMALL = Puffs(max_puffs=500)
LONG = 8000  # steps; the same in most tests, so that they share a compilation


@eqx.filter_jit
def _run(field: Puffs, state: Any, key: Any, num: int) -> Any:
    return jax.lax.scan(lambda s, k: (field.advance(k, s), s.oldest), state, random.split(key, num))


def run(field: Puffs, state: Any, key: Any, num: int) -> Any:
    """The state after `num` steps, and the index of the next birth after each."""
    return _run(jax.tree.map(jnp.asarray, field), state, key, num)


def empty(field: Puffs) -> PuffsState:
    none = jnp.zeros(field.max_puffs)
    return PuffsState(none, none, none, jnp.zeros((), jnp.int32), field.flow.init(random.key(0)))


def births(field: Puffs, key: Any) -> np.ndarray:
    _, heads = run(field, empty(field), key, LONG)
    return np.diff(np.asarray(heads, int)) % field.max_puffs


def numpy_plume(seconds: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Singh's update, one substep at a time."""
    rng, dt = np.random.default_rng(seed), 0.01
    x, y, radius = np.zeros(0), np.zeros(0), np.zeros(0)
    for _ in range(round(seconds / dt)):
        x, y = x + 0.5 * dt, y + rng.normal(0, 0.5, y.shape) * dt
        radius = radius + 0.01 * dt
        births_per_step = rng.poisson(1.0)
        x, y = np.append(x, np.zeros(births_per_step)), np.append(y, np.zeros(births_per_step))
        radius = np.append(radius, np.full(births_per_step, 0.01))
    return x, y, radius


def test_births_are_poisson() -> None:
    births_per_step = births(SMALL, random.key(0))
    assert births_per_step.mean() == pytest.approx(4.0, rel=0.03)  # four substeps of 1.0
    assert births_per_step.var() == pytest.approx(4.0, rel=0.06)
    assert np.mean(births_per_step == 0) == pytest.approx(math.exp(-4), rel=0.25)


def test_a_sparse_plume_keeps_a_fraction() -> None:
    births_per_step = births(Puffs(max_puffs=500, keep=0.25), random.key(0))
    assert births_per_step.mean() == pytest.approx(1.0, rel=0.05)
    assert births_per_step.var() == pytest.approx(1.0, rel=0.08)


def test_without_births_the_concentration_is_zero() -> None:
    field = Puffs(max_puffs=500, rate=0.0)
    assert not np.any(jax.jit(field.init)(random.key(0)).radius)
    state, _ = run(field, empty(field), random.key(1), LONG)
    assert not np.any(state.radius)
    assert float(field.concentration(state, jnp.zeros(2))) == 0


def test_puffs_drift_grow_and_spread_as_in_the_equations() -> None:
    """x and radius of a puff give its age; y is a random walk of that length."""
    field = Puffs(max_puffs=6000)
    state, _ = run(field, empty(field), random.key(0), 1000)  # 40 s, 4000 births
    alive = np.asarray(state.radius) > 0
    x, y, radius = (np.asarray(part, float)[alive] for part in (state.x, state.y, state.radius))
    assert alive.sum() == pytest.approx(4000, abs=4 * 63)
    substeps = (radius - 0.01) / (0.01 * 0.01)
    np.testing.assert_allclose(x, 0.5 * 0.01 * substeps, atol=5e-3)
    old = substeps > 100
    step = 0.5 * 0.01
    assert (y[old] ** 2 / (step**2 * substeps[old])).mean() == pytest.approx(1.0, abs=0.1)


def test_the_initial_plume_is_developed() -> None:
    """Compared with the plain loop after 20 s, when puffs have moved 10 m."""
    plumes = jax.jit(jax.vmap(Puffs().init))(random.split(random.key(0), 40))
    x, y, radius = (np.asarray(part, float) for part in (plumes.x, plumes.y, plumes.radius))
    near = x < 8.0
    loops = [numpy_plume(18.0, seed) for seed in range(2)]
    looped = [tuple(part[loop[0] < 8.0] for part in loop) for loop in loops]
    assert near.sum() / 40 == pytest.approx(1600, abs=4 * 40 / math.sqrt(40) + 2)
    assert np.mean([part[0].size for part in looped]) == pytest.approx(1600, abs=4 * 40)
    for low, high in ((0.0, 0.5), (2.0, 3.0), (6.0, 8.0)):
        ours = y[(x >= low) & (x < high)]
        theirs = np.concatenate([part[1][(part[0] >= low) & (part[0] < high)] for part in looped])
        assert ours.std() == pytest.approx(theirs.std(), rel=4 / math.sqrt(2 * theirs.size))
        assert ours.mean() == pytest.approx(0, abs=5 * ours.std() / math.sqrt(ours.size))
    np.testing.assert_allclose(radius[near], 0.01 + 0.02 * x[near], atol=1e-4)


@pytest.mark.slow
def test_the_initial_statistics_are_stationary() -> None:
    first = jax.jit(jax.vmap(SMALL.init))(random.split(random.key(0), 200))
    later = jax.vmap(lambda state, key: _run(SMALL, state, key, 150)[0])(first, random.split(random.key(1), 200))
    for statistic in (lambda s: s.x, lambda s: s.y**2, lambda s: s.radius):
        a, b = (np.asarray(statistic(state)).mean(axis=1) for state in (first, later))
        assert a.mean() == pytest.approx(b.mean(), abs=4 * math.hypot(a.std(), b.std()) / math.sqrt(200))


def test_concentration_is_the_sum_over_the_puffs_around_a_point() -> None:
    field = SMALL
    state, _ = run(field, empty(field), random.key(4), LONG)
    x, y, radius = (np.asarray(part, float) for part in (state.x, state.y, state.radius))
    rng = np.random.default_rng(0)
    points = np.stack([x, y], axis=-1)[rng.integers(0, 500, 200)] + rng.normal(0, 0.03, (200, 2))
    expected = np.zeros(200)
    for index, (px, py) in enumerate(points):
        for puff in range(500):
            if (px - x[puff]) ** 2 + (py - y[puff]) ** 2 < radius[puff] ** 2:
                expected[index] += (0.01 / radius[puff]) ** 3
    assert (expected > 0).sum() > 20
    np.testing.assert_allclose(field.concentration(state, jnp.asarray(points)), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_wandering_wind_bends_the_plume_from_the_start() -> None:
    """The displacement of the centre line 20 s downwind is the integral of an Ornstein–Uhlenbeck angle."""
    wind = Wandering(spread=0.05, time_constant=5.0)
    field = Puffs(max_puffs=2000, flow=wind, shake=0.0)
    states = jax.jit(jax.vmap(field.init))(random.split(random.key(0), 400))
    age = (np.asarray(states.radius) - 0.01) / 0.01
    y = np.asarray(states.y)[np.abs(age - 10) < 0.2]
    theory = 0.5 * 0.05 * math.sqrt(2 * 5.0 * (10 - 5 * (1 - math.exp(-2))))
    assert y.std() == pytest.approx(theory, rel=0.12)


def numpy_switched_centre(rng: np.random.Generator, seconds: float) -> float:
    """The y at which the centre line of a plume in a wind that switches every 3 ± 0.3 s crosses x = 6 m."""
    dt, times = 0.02, [0.0]
    count = int(seconds / 3) + 1
    switches = 3 * np.arange(1, count) + rng.uniform(-0.3, 0.3, count - 1)
    turns = np.clip(rng.normal(0, math.pi / 6, count - 1), -math.pi / 3, math.pi / 3)
    times = np.arange(0, seconds, dt)
    angle = np.concatenate([[0.0], turns])[np.searchsorted(switches, times, side="right")]
    x, y = (np.cumsum(part[::-1]) * 0.5 * dt for part in (np.cos(angle), np.sin(angle)))  # by age
    return float(np.interp(6.0, x, y))


def test_a_switching_wind_has_bent_the_plume_before_the_start() -> None:
    """The centre line at 6 m has the spread of a plume after a minute of switching, 1.4 m."""
    rng = np.random.default_rng(0)
    loops = np.array([numpy_switched_centre(rng, 60 + rng.uniform(0, 3)) for _ in range(1500)])
    field = Puffs(max_puffs=2600, flow=Switching(), shake=0.0)
    states = jax.jit(jax.vmap(field.init))(random.split(random.key(0), 600))
    x, y = np.asarray(states.x), np.asarray(states.y)
    centres = np.array([np.interp(6.0, a[::-1], b[::-1]) for a, b in zip(x, y, strict=True)])
    assert loops.std() == pytest.approx(1.4, rel=0.06)
    assert centres.std() == pytest.approx(loops.std(), rel=0.1)
    assert centres.mean() == pytest.approx(0, abs=4 * 1.4 / math.sqrt(600))


@pytest.mark.slow
def test_a_switching_plume_stays_as_it_starts() -> None:
    """The spread of all puffs is the same at the start and 10 s later."""
    field = Puffs(max_puffs=1500, flow=Switching(), shake=0.0)
    first = jax.jit(jax.vmap(field.init))(random.split(random.key(0), 400))
    later = jax.vmap(lambda state, key: _run(field, state, key, 250)[0])(first, random.split(random.key(1), 400))
    for part in ("x", "y"):
        a, b = (np.asarray(getattr(state, part)) for state in (first, later))
        assert a.std() == pytest.approx(b.std(), rel=0.1)


def test_square_puffs_cover_more_than_circles() -> None:
    """A square around a circle has 4/π of its area; overlapping puffs do not change the sum."""
    state = jax.jit(SMALL.init)(random.key(0))
    points = jnp.asarray(np.random.default_rng(0).uniform((0.3, -0.3), (2.0, 0.3), (40_000, 2)))
    circles, squares = (
        np.asarray(jax.jit(replace(SMALL, square=square).concentration)(state, points)) for square in (False, True)
    )
    assert (squares >= circles).all()
    assert squares.mean() / circles.mean() == pytest.approx(4 / math.pi, rel=0.05)


def test_puffs_outside_their_area_are_removed() -> None:
    field = replace(SMALL, low=(-1.0, -0.1), high=(1.5, 0.1))
    state, _ = run(field, jax.jit(field.init)(random.key(0)), random.key(1), 100)
    x, y, alive = (np.asarray(part) for part in field.puffs(state))
    assert alive.any()
    assert x[alive].max() < 1.5
    assert np.abs(y[alive]).max() < 0.1


@pytest.mark.parametrize(("wind", "fits"), [(0.5, True), (0.4, False), (0.0, False)])
def test_a_buffer_that_would_cut_the_plume_is_rejected(wind: float, fits: bool) -> None:
    field = Puffs(flow=Constant((wind, 0.0)))
    if fits:
        field.check_arena((-2.0, -2.5), (10.0, 2.5))
    else:
        with pytest.raises(ValidationError, match="max_puffs"):
            field.check_arena((-2.0, -2.5), (10.0, 2.5))


@pytest.mark.slow
def test_a_switched_wind_turns_only_the_young_plume() -> None:
    field = Puffs(max_puffs=2000, flow=SwitchOnce(earliest=1.0, latest=1.0), shake=0.0)
    state, _ = run(field, jax.jit(field.init)(random.key(0)), random.key(1), 100)  # 4 s, of which 3 after the switch
    x, y = np.asarray(state.x), np.asarray(state.y)
    age = (np.asarray(state.radius) - 0.01) / 0.01
    young = age < 2.9
    np.testing.assert_allclose(y[young], x[young], atol=0.01)
    old = age > 4.1
    np.testing.assert_allclose(y[old], 0.5 * 3.0 * math.sqrt(0.5), atol=0.02)


def test_the_buffer_keeps_the_newest() -> None:
    state, _ = run(SMALL, empty(SMALL), random.key(1), LONG)
    assert float(state.x.max()) == pytest.approx(0.5 * 5.0, rel=0.3)  # 500 births take about 5 s
    assert np.all(np.asarray(state.radius) >= 0.01 - 1e-7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rate", -1.0),
        ("keep", 1.5),
        ("radius", 0.0),
        ("shake", math.nan),
        ("dt", 0.0),
        ("max_puffs", 0),
        ("substeps", 0),
    ],
)
def test_invalid_numbers_are_rejected(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        Puffs(**{name: value})
