"""Sources that move and pulse, and several sources, against formulae and a NumPy simulation."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tropism import PlumeNav, Session
from tropism.errors import ValidationError
from tropism.plume import Filaments, Gaussian, Meander, MovingSource, Puffs, PulsedSource, SeveralSources
from tropism.plume.fields import Turbulence, share
from tropism.plume.fields.sources import SourceState
from tropism.plume.wind import Constant, Switching

SMALL: Any = {"flow": Constant((0.5, 0.0)), "rate": 50.0, "shake": 0.0, "max_puffs": 900, "max_births": 32}
AHEAD = Filaments(air=Turbulence(low=(0.0, -50.0), high=(100.0, 50.0)), dt=0.5, warmup=60, max_puffs=500)


def after(field: Any, steps: int, seed: int = 0) -> SourceState:
    def step(i: Any, state: Any) -> Any:
        return field.advance(random.fold_in(random.key(seed + 1), i), state)

    return jax.jit(lambda: jax.lax.fori_loop(0, steps, step, field.init(random.key(seed))))()


def alive_puffs(field: Any, state: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y, alive = (np.asarray(part) for part in field.puffs(state))
    return x[alive], y[alive]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 40])
def test_puffs_of_a_moving_source_are_where_they_were_released(steps: int) -> None:
    """A puff that is a seconds old was released at the source's place a seconds ago and drifted 0.5 m/s · a in x."""
    field = MovingSource(Puffs(**SMALL), velocity=(0.0, 0.01), sway=(0.0, 0.3), period=4.0)
    state = after(field, steps)
    x, y, alive = (np.asarray(part) for part in field.puffs(state))
    age = (np.asarray(state.inner.radius) - 0.01) / 0.01
    now = steps * 0.04
    released = now - age
    expected = 0.01 * released + 0.3 * np.sin(2 * np.pi * released / 4)
    near = alive & (age < 10)
    assert near.sum() > 200
    np.testing.assert_allclose(x[near], 0.5 * age[near], atol=0.03)
    # After the start, births of one step share the position at its beginning.
    np.testing.assert_allclose(y[near], expected[near], atol=0.05)
    source = field.source_at(state)
    np.testing.assert_allclose(source, [0, 0.01 * now + 0.3 * np.sin(2 * np.pi * now / 4)], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 60])
def test_a_pulsed_source_leaves_gaps_in_its_plume(steps: int) -> None:
    field = PulsedSource(Puffs(**SMALL), period=2.0, duty=0.25)
    state = after(field, steps)
    x, _ = alive_puffs(field, state)
    released = float(state.start) + steps * 0.04 - x / 0.5
    phase = np.mod(released, 2.0)
    assert ((phase < 0.25 * 2 + 0.08) | (phase > 2 - 0.08)).all()  # a step and a substep of tolerance
    near = x < 5.0  # 10 s of releases: five periods of a quarter each
    assert near.sum() == pytest.approx(50 * 10 * 0.25, rel=0.35)


@pytest.mark.slow
def test_several_sources_have_the_puffs_of_each_in_one_wind() -> None:
    inner = replace(Puffs(**SMALL), flow=Switching(), max_puffs=2000)
    field = SeveralSources(inner, ((0.0, 1.0), (0.0, -2.0)))
    state = after(field, 100)
    _, y, alive = (np.asarray(part) for part in field.puffs(state))
    age = (np.asarray(state.inner.radius) - 0.01) / 0.01
    young = alive & (age < 3.9)  # released after the start
    # All puffs of one age have drifted by the same wind: they differ by the distance of their sources.
    order = np.argsort(age[young])
    relative = y[young][order] - np.interp(age[young][order], *_mean_by_age(age[young], y[young]))
    assert relative.std() > 1
    counts = np.histogram(relative, [-3.0, -0.9, 0.8, 2.5])[0]
    np.testing.assert_allclose(counts, counts.sum() / 3, rtol=0.25)
    assert counts.sum() == pytest.approx(3 * 50 * 3.9, rel=0.15)
    assert field.source == (0.0, 0.0)


def _mean_by_age(age: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    edges = np.arange(0, 4.01, 0.24)  # whole turns of the three sources
    which = np.digitize(age, edges)
    groups = [which == number for number in np.unique(which)]
    return np.array([age[group].mean() for group in groups]), np.array([y[group].mean() for group in groups])


def test_a_gaussian_follows_its_sources_at_once() -> None:
    places, xy = [(10.0, 20.0), (40.0, 20.0)], jnp.array([[12.0, 25.0], [38.0, 18.0]])
    several = SeveralSources(Gaussian(places[0], sigma=5.0), (places[1],))
    expected = sum(np.exp(-((np.asarray(xy) - place) ** 2).sum(-1) / 50) for place in places)
    np.testing.assert_allclose(several.concentration(several.init(random.key(0)), xy), expected, rtol=1e-5)
    moving = MovingSource(Gaussian(places[0], sigma=5.0, dt=0.5), velocity=(1.0, 0.0))
    state = after(moving, 6)
    expected = np.exp(-((np.asarray(xy) - (13.0, 20.0)) ** 2).sum(-1) / 50)
    np.testing.assert_allclose(moving.concentration(state, xy), expected, rtol=1e-5)
    pulsed = PulsedSource(Gaussian(places[0], dt=0.1), period=1.0, duty=0.3)
    state = pulsed.init(random.key(3))
    shown = []
    for _ in range(100):
        shown.append(float(pulsed.concentration(state, jnp.array(places[0]))))
        state = pulsed.advance(random.key(0), state)
    assert set(shown) == {0.0, 1.0}
    assert np.mean(shown) == pytest.approx(0.3, abs=0.02)


@pytest.mark.slow
def test_filaments_of_several_sources_are_simulated_from_their_places() -> None:
    inner = replace(AHEAD, scatter=0.0)
    field = SeveralSources(inner, ((5.0, 30.0),))
    x, y = alive_puffs(field, after(field, 5))
    newest = x < 12
    assert newest.sum() > 20
    near = np.minimum(np.abs(y[newest]), np.abs(y[newest] - 30))
    assert near.max() < 8
    upper = (np.abs(y[newest] - 30) < 8).mean()
    assert upper == pytest.approx(0.5, abs=0.2)
    off = PulsedSource(inner, period=1e6, duty=0.0)
    assert alive_puffs(off, after(off, 3))[0].size == 0


def test_the_goal_moves_with_its_source() -> None:
    field = MovingSource(Gaussian((20.0, 30.0), dt=1.0), sway=(0.0, 10.0), period=8.0)
    session = Session(PlumeNav(field=field, grid_size=(64, 64), goal_radius=2.0))
    timestep = session.reset(seed=0, options={"start_location": (20, 43)})
    for _ in range(2):  # down to (20, 41), while the source comes up to (20, 40)
        timestep = session.step(2)
    assert timestep.info["source_location"] == (20, 40)
    assert timestep.info["distance_to_goal"] == pytest.approx(1.0, abs=1e-3)
    assert timestep.terminated


def test_a_shared_moving_source_can_be_translated() -> None:
    moving = MovingSource(Gaussian((20.0, 30.0), dt=1.0), velocity=(1.0, 0.0))
    shared = share(moving, random.key(0), 5).with_source((25.0, 30.0))
    np.testing.assert_allclose(shared.source_at(jnp.int32(3)), [28.0, 30.0])
    np.testing.assert_allclose(shared.concentration(jnp.int32(3), jnp.array([28.0, 30.0])), 1.0, rtol=1e-6)


def test_fields_without_a_source_of_their_own_and_small_buffers_are_rejected() -> None:
    with pytest.raises(ValidationError, match="inner"):
        PulsedSource(Meander())
    with pytest.raises(ValidationError, match="growth"):
        MovingSource(Puffs(growth=0.0))
    with pytest.raises(ValidationError, match="max_puffs"):
        SeveralSources(Puffs(**SMALL), ((0.0, 1.0),) * 5).check_arena((-2.0, -2.5), (10.0, 2.5))
