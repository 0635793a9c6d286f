"""PlumeNavSingh-v0 against a NumPy version of the published step, and the assay."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tropism.core.registry import make
from tropism.envs.plume.assay import CONDITIONS, assay_env, find_starts, run_assay
from tropism.plume.fields import share

DT = 0.04


def published_step(state: Any, action: Any, puffs: Any, wind: Any) -> tuple[Any, ...]:
    """One step of a flyer: `(x, y, heading)`, obs, reward, whether the episode ended."""
    x, y, heading = state
    px, py, radius = puffs
    stray = np.hypot(px - x, py - y).min()
    turn, speed = action
    heading = heading + 6.25 * math.pi * ((turn + 1) / 2 - 0.5) * DT
    own = 2.0 * speed * np.array([math.cos(heading), math.sin(heading)])
    before = math.hypot(x, y)
    x, y = np.array([x, y]) + (own + wind) * DT
    odour = ((0.01 / radius) ** 3)[(np.abs(px - x) < radius) & (np.abs(py - y) < radius)].sum()
    odour = 0.0 if odour < 1e-4 else min(odour, 1.0)
    apparent = wind - own
    angle = math.atan2(apparent[1], apparent[0]) - heading
    obs = [*(np.hypot(*apparent) * np.array([math.cos(angle), math.sin(angle)])), odour]
    home, lost, tick = math.hypot(x, y) <= 0.2, stray > 2.0, -10 / 300
    reward = 101.0 if home else tick
    approach = 5 * (before - math.hypot(x, y))
    if odour <= 1e-4:
        reward, approach = reward + 5 * tick, min(0.0, approach)
    if lost:
        reward -= (5 * math.hypot(x, y) + stray) * (2 if x < 0 else 1)
    return (x, y, heading), obs, reward + approach, home or lost


@pytest.mark.slow
def test_steps_are_the_published_ones() -> None:
    env, params = make("PlumeNavSingh-v0")
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    rng = np.random.default_rng(0)
    ends = set[bool]()
    on_odour = 0
    for seed in range(4):
        _, state = reset(random.key(seed), params)
        mine = (float(state.agent.x), float(state.agent.y), float(state.agent.heading))
        # Towards the source at first; then anywhere, far from the plume.
        for number in range(280):
            goal = math.atan2(-mine[1], -mine[0]) if seed < 2 else math.pi / 2
            turn = np.clip(math.remainder(goal - mine[2], 2 * math.pi) / math.radians(22.5), -1, 1)
            action = np.array([np.clip(turn + rng.normal(0, 0.1), -1, 1), rng.uniform(0.5, 1)], np.float32)
            obs, state, reward, done, _ = step(random.key(1000 * seed + number), state, action, params)
            alive = np.asarray(state.field.radius) > 0
            puffs = [np.asarray(part, float)[alive] for part in (state.field.x, state.field.y, state.field.radius)]
            mine, expected, gained, ended = published_step(mine, action, puffs, np.array([0.5, 0.0]))
            np.testing.assert_allclose([state.agent.x, state.agent.y], mine[:2], atol=2e-4)
            np.testing.assert_allclose(obs[:2], expected[:2], atol=1e-3)
            if abs(float(obs[2]) - expected[2]) < 1e-3:  # the edge of a puff may differ in its last bit
                assert float(reward) == pytest.approx(gained, abs=2e-2)
                on_odour += expected[2] > 0
            assert bool(done) == ended or bool(state.agent.absorbed)
            if bool(done):
                ends.add(math.hypot(*mine[:2]) <= 0.2)
                break
    assert ends == {True, False}
    assert on_odour > 10


@pytest.mark.slow
def test_a_resting_flyer_drifts_and_a_flyer_observes_the_published_wind() -> None:
    env, params = make("PlumeNavSingh-v0")
    params = replace(params, start=replace(params.start, fixed=1, point=(6.0, 0.0), heading=0.0))
    step = jax.jit(env.step)
    _, state = jax.jit(env.reset)(random.key(0), params)
    obs, rested, *_ = step(random.key(1), state, jnp.array([0.0, 0.0]), params)
    assert float(rested.agent.x) == pytest.approx(6.02, abs=1e-5)
    np.testing.assert_allclose(obs[:2], [0.5, 0.0], atol=1e-5)
    obs, flown, *_ = step(random.key(1), state, jnp.array([0.0, 1.0]), params)
    np.testing.assert_allclose(obs[:2], [-1.5, 0.0], atol=1e-4)
    _, turned, *_ = step(random.key(1), state, jnp.array([1.0, 0.0]), params)
    assert math.degrees(float(turned.agent.heading)) == pytest.approx(22.5, abs=1e-3)
    assert float(flown.agent.x) == pytest.approx(6.1, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["constant", "switch_many"])
def test_flyers_start_among_the_puffs(regime: str) -> None:
    """The start is normal around a quantile of the puffs' positions, as in NumPy."""
    env, params = make("PlumeNavSingh-v0", regime=regime)
    _, states = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))(random.split(random.key(0), 400), params)
    rng, loops = np.random.default_rng(0), []
    for index in range(400):
        alive = np.asarray(states.field.radius[index]) > 0
        x, y = (np.asarray(part[index])[alive] for part in (states.field.x, states.field.y))
        fraction = rng.uniform(0.4, 0.8)
        below, middle = np.quantile(x, [fraction - 0.1, fraction])
        near = y[np.abs(x - middle) <= middle - below]
        low, centre = np.quantile(near, [0.05, 0.5])
        loops.append([middle + (middle - below) * rng.normal(), centre + min(1, centre - low) * rng.normal()])
    ours, theirs = np.asarray(states.agent.xy), np.array(loops)
    np.testing.assert_allclose(ours.mean(0), theirs.mean(0), atol=4 * theirs.std(0).max() / math.sqrt(200))
    np.testing.assert_allclose(ours.std(0), theirs.std(0), rtol=0.16)


@pytest.mark.slow
@pytest.mark.parametrize("condition", CONDITIONS[:3:2], ids=lambda each: each.name)
def test_the_assay_starts_at_240_points_across_the_plume(condition: Any) -> None:
    env = assay_env(condition)
    field = share(env.default_params().field, random.key(0), 30)
    starts = find_starts(field, condition.regime == "constant", 0)
    assert starts.shape == (240, 4)
    assert set(starts[:, 0]) == {4.0, 6.0, 8.0}
    assert set(starts[:, 2]) == {45.0 * number for number in range(8)}
    assert set(starts[:, 3]) == {0, 25}
    across = np.unique(starts[(starts[:, 0] == 6) & (starts[:, 3] == 0)][:, 1])
    assert len(across) == 5
    margins = np.diff(across)[[0, -1]]
    assert np.allclose(margins, 0.5) == (condition.regime == "constant")


@pytest.mark.slow
def test_a_flyer_that_rests_never_finds_the_source() -> None:
    result = run_assay(lambda _obs: jnp.zeros(2), CONDITIONS[0])
    assert result.found.shape == (240,)
    assert not result.found.any()
    far_off = result.starts[:, 0] + 0.5 * DT * result.steps
    assert far_off.max() > 11  # carried downwind, until it strays from the plume
