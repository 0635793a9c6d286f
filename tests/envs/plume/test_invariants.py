"""Invariants of every plume search for any seed and actions: a thousand seeds each, drawn in batches."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tropism.core.registry import make, registered
from tropism.core.rollout.api import rollout
from tropism.core.rollout.policy import random_policy
from tropism.core.spaces import Box, Dict
from tropism.envs.plume.nav import PlumeNav
from tropism.plume.fields import Gaussian, Meander
from tropism.plume.motion import Compass, Continuous, Oriented
from tropism.plume.rewards import SparseGoal
from tropism.plume.sensors import FullField, Position, SourcePosition, dict_sensor

SEEDS, BATCHES, STEPS = 100, 10, 40  # seeds at a time, times, steps of each; most episodes end within them
QUICK = {"PlumeNav-v0", "PlumeNavMeander-v0"}
OUT_OF_REACH = {"PlumeNavFilaments-v0"}  # a thousand turbulent winds take minutes; a shared one does not
WALL = np.zeros((24, 32), bool)
WALL[3:20, 10], WALL[5, 12:30] = True, True
ROUND = Gaussian((16.0, 12.0), 6.0)
EVERYTHING = dict_sensor(agent_position=Position(), concentration_field=FullField(), source_location=SourcePosition())


def registered_searches() -> list[Any]:
    ids = [spec.id for spec in registered() if spec.id.startswith("Plume") and spec.id not in OUT_OF_REACH]
    return [pytest.param(make(id)[0], id=id, marks=() if id in QUICK else pytest.mark.slow) for id in ids]


OTHERS = [
    pytest.param(make("PlumeNavPuffs-v0", shared=True)[0], id="shared puffs"),
    pytest.param(make("PlumeNavFilaments-v0", shared=True)[0], id="shared filaments"),
    pytest.param(PlumeNav(ROUND, grid_size=(32, 24), motion=Compass(step_length=3.0), obstacles=WALL), id="walls"),
    pytest.param(PlumeNav(ROUND, grid_size=(32, 24), motion=Continuous(speed=90.0), obstacles=WALL), id="flying"),
    pytest.param(PlumeNav(ROUND, grid_size=(32, 24), motion=Oriented(boundary="absorb")), id="absorb"),
    pytest.param(
        PlumeNav(Meander(), motion=Continuous(boundary="wrap", speed=1.6, turn_rate=0.8, drift=True, dt=1.0)), id="wrap"
    ),
    pytest.param(PlumeNav(ROUND, grid_size=(32, 24), sensor=EVERYTHING), id="everything in sight"),
]
SEARCHES = [
    *registered_searches(),
    *(pytest.param(*case.values, id=case.id, marks=pytest.mark.slow) for case in OTHERS),
]


@pytest.mark.slow
@pytest.mark.parametrize("env", SEARCHES)
def test_a_thousand_seeds_keep_the_invariants(env: PlumeNav):
    """The numbers of an episode are drawn too: they are params, so one compilation is enough."""

    @settings(max_examples=BATCHES)
    @given(st.integers(0, 2**64 - SEEDS), st.integers(STEPS // 2, STEPS), st.floats(0, 3, width=32))
    def holds(seed: int, max_steps: int, radius: float):
        params = {"max_steps": max_steps, "goal_radius": radius * env.goal_radius}
        run = rollout(env, random_policy(env), seed, SEEDS, STEPS, params=params, reproducible=True)
        check(env, jax.tree.map(np.asarray, run.transitions), max_steps, np.float32(params["goal_radius"]))

    holds()


def check(env: PlumeNav, transitions: Any, max_steps: int, radius: Any) -> None:
    info = transitions.info
    x, y = info["agent_xy"]
    assert ((x >= env.low[0]) & (x <= env.high[0]) & (y >= env.low[1]) & (y <= env.high[1])).all()
    check_observed(env.observation_space(env.default_params()), transitions.next_obs)
    assert transitions.reward.dtype == np.float32
    assert np.isfinite(transitions.reward).all()
    assert transitions.terminated.dtype == transitions.truncated.dtype == info["goal_reached"].dtype == bool
    check_goal(env, transitions, radius)
    check_continuity(transitions)
    np.testing.assert_array_equal(transitions.truncated, steps_of_episodes(transitions) >= max_steps)
    smell = info["concentration_at_agent"]
    assert (np.isfinite(smell) & (smell >= 0)).all()
    if isinstance(env.field, Gaussian):
        assert (smell <= 1).all()
    if env.obstacles is not None:
        arena = env.default_params().arena
        assert not np.asarray(arena.is_blocked(jnp.stack([jnp.asarray(x, float), jnp.asarray(y, float)], -1))).any()


def check_goal(env: PlumeNav, transitions: Any, radius: Any) -> None:
    info = transitions.info
    (x, y), source = info["agent_xy"], info["source_location"]
    reached = info["distance_to_goal"] <= radius
    np.testing.assert_allclose(info["distance_to_goal"], np.hypot(x - source[0], y - source[1]), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(info["goal_reached"], reached)
    if isinstance(env.reward, SparseGoal):
        np.testing.assert_array_equal(transitions.reward, reached.astype(np.float32))
    if env.motion.boundary != "absorb":
        np.testing.assert_array_equal(transitions.terminated, reached)
        return
    at_edge = (x == env.low[0]) | (x == env.high[0]) | (y == env.low[1]) | (y == env.high[1])
    assert (reached <= transitions.terminated).all()
    assert (at_edge | reached)[transitions.terminated].all()


def check_continuity(transitions: Any) -> None:
    """An observation is the next observation of the previous step, unless an episode ended there."""
    goes_on = ~(transitions.terminated | transitions.truncated)[:-1]
    for obs, before in zip(jax.tree.leaves(transitions.obs), jax.tree.leaves(transitions.next_obs), strict=True):
        np.testing.assert_array_equal(obs[1:][goes_on], before[:-1][goes_on])


def check_observed(space: Any, obs: Any) -> None:
    if isinstance(space, Dict):
        for name, part in space.spaces.items():
            check_observed(part, obs[name])
        return
    assert isinstance(space, Box)
    assert obs.shape[2:] == space.shape
    assert obs.dtype == space.dtype
    assert ((obs >= space.low) & (obs <= space.high)).all()


def steps_of_episodes(transitions: Any) -> Any:
    """The number of each step in its episode, from 1."""
    numbers, running = [], np.zeros(SEEDS, int)
    for ended in transitions.terminated | transitions.truncated:
        running = running + 1
        numbers.append(running)
        running = np.where(ended, 0, running)
    return np.stack(numbers)
