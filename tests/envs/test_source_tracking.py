"""SourceTracking: episodes, strategies, and both ways to measure search times."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random

from tropism import Session, ValidationError, make, random_policy
from tropism.core.rollout.policy import as_policy
from tropism.core.rollout.stepped import SteppedPolicy
from tropism.envs.source_tracking import isotropic
from tropism.plume.tracking.strategies import STRATEGIES

IDS = ["SourceTracking1D-v0", "SourceTracking19x19-v0", "SourceTracking53x53-v0", "SourceTrackingWindy-v0"]
SMALL = {"dims": 2, "size": 7}
SIDE = 11  # of the grid on which strategies are tested for properties


def make_small(**arguments: Any) -> tuple[Any, Any]:
    return make("SourceTracking-v0", **{**SMALL, **arguments})


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("draw_source", [True, False])
@given(seed=st.integers(0, 2**30))
@settings(deadline=None, max_examples=8)
def test_the_belief_stays_a_distribution_inside_the_grid(dims: int, draw_source: bool, seed: int):
    env, params = make_small(dims=dims, size=5, draw_source=draw_source)
    step, (_, state) = jax.jit(env.step), env.reset(random.key(seed), params)
    for time in range(25):
        assert float(state.belief.sum()) == pytest.approx(1, abs=1e-4)
        assert float(state.belief.min()) >= 0
        assert all(0 <= at < 5 for at in np.asarray(state.position))
        if draw_source and float(state.not_found) == 1:
            assert float(state.belief[tuple(state.source)]) > 0
        action = random.randint(random.key(seed + time), (), 0, 2 * dims)
        _, state, reward, done, info = step(random.key(time), state, action, params)
        assert float(reward) <= 0
        assert bool(info["terminated"]) == (float(info["not_found"]) < 1e-6)
        if done:
            return


@pytest.mark.parametrize("name", STRATEGIES)
@given(seed=st.integers(0, 2**30))
@settings(deadline=None, max_examples=6)
def test_a_strategy_never_leaves_the_grid_and_depends_only_on_its_key(name: str, seed: int):
    env, params = make_small(size=SIDE)
    strategy = env.strategies(params)[name]()
    table, act = strategy.table, eqx.filter_jit(strategy.act)
    memory = strategy.init(random.key(0))
    rng = np.random.default_rng(seed)
    for time in range(24):
        key, obs = random.key(seed + time), jnp.array([float(rng.integers(env.num_hits))])
        action, after = act(key, memory, obs)
        assert int(action) == int(act(key, memory, obs)[0])
        neighbour = np.asarray(table.neighbours(memory.position))[int(action)]
        assert ((neighbour >= 0) & (neighbour < SIDE)).all()
        assert float(after.belief.sum()) == pytest.approx(1, abs=1e-4)
        memory = after


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_acts_alike_on_its_own_belief_and_on_an_observed_one(name: str):
    env, params = make_small()
    watched, _ = make_small(observation="belief")
    own, shown = env.strategies(params)[name](), watched.strategies(params)[name]()
    with Session(env, params) as first, Session(watched, params) as second:
        policies = SteppedPolicy(own, True), SteppedPolicy(shown, True)
        steps = [session.reset(seed=5) for session in (first, second)]
        for policy in policies:
            policy.reset(5)
        while not (steps[0].terminated or steps[0].truncated or first.state.step_count > 20):
            actions = [int(policy.act(step.obs)) for policy, step in zip(policies, steps, strict=True)]
            assert actions[0] == actions[1]
            steps = [session.step(actions[0]) for session in (first, second)]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_beats_random_moves(name: str):
    env, params = make_small()
    policies = env.strategies(params)[name](), random_policy(env, params)
    ours, theirs = (median_time(env, params, policy, 128) for policy in policies)
    assert ours < 0.7 * theirs


@pytest.mark.slow
def test_every_strategy_beats_random_moves_on_the_grid_of_19_by_19():
    env, params = make("SourceTracking19x19-v0")
    theirs = median_time(env, params, random_policy(env, params), 128)
    times = {name: median_time(env, params, make_one(), 128) for name, make_one in env.strategies(params).items()}
    assert max(times.values()) < 0.7 * theirs, times


def median_time(env: Any, params: Any, policy: Any, searches: int) -> float:
    times = env.search_times(policy, 0, searches, params)
    return float(np.median(np.where(times.not_found < 1, np.nan_to_num(times.steps), int(params.max_steps))))


def test_both_protocols_agree_on_the_mean_time():
    drawn, params = make_small()
    weighted, _ = make_small(draw_source=False)
    strategy = drawn.strategies(params)["space-aware-infotaxis"]()
    first, second = (env.search_times(strategy, 0, 1500, params) for env in (drawn, weighted))
    errors = [times.steps.std() / len(times.steps) ** 0.5 for times in (first, second)]
    assert abs(first.steps.mean() - second.steps.mean()) < 4 * np.hypot(*errors)
    assert errors[1] < errors[0]  # probabilities have less variance than draws
    assert second.not_found.max() < 1e-6


def test_search_times_are_those_of_sessions():
    env, params = make_small()
    strategy = env.strategies(params)["infotaxis"]()
    times = env.search_times(strategy, 3, 5, params)
    policy = SteppedPolicy(strategy, True)
    for episode in range(5):
        with Session(env, params) as session:
            timestep = session.reset(seed=3 + episode)
            policy.reset(3 + episode)
            while not (timestep.terminated or timestep.truncated):
                timestep = session.step(policy.act(timestep.obs))
            assert session.state.step_count == times.steps[episode]
            assert session.total_reward == -times.steps[episode]


def test_more_searches_than_lanes_are_each_counted_once():
    env, params = make_small(draw_source=False)
    strategy = env.strategies(params)["greedy"]()
    many = env.search_times(strategy, 0, 300, params)
    few = env.search_times(strategy, 290, 10, params)
    np.testing.assert_allclose(many.steps[290:], few.steps, rtol=1e-4)
    assert many.found.sum() + many.not_found.mean() == pytest.approx(1, abs=1e-4)
    mean = np.arange(len(many.found)) @ many.found / many.found.sum()
    assert mean == pytest.approx(np.average(many.steps, weights=1 - many.not_found), rel=1e-3)


def test_search_times_in_x64_are_those_in_single_precision():
    env, params = make_small(size=5, draw_source=False)
    expected = env.search_times(env.strategies(params)["greedy"](), 0, 20, params).steps
    with jax.enable_x64(True):
        found = env.search_times(env.strategies(params)["greedy"](), 0, 20, params).steps
    assert found.mean() == pytest.approx(expected.mean(), rel=0.2)  # other random numbers


def test_the_time_of_a_search_that_never_finds_the_source_is_nan():
    env, params = make_small(size=5)
    times = env.search_times(leftward(), 0, 64, params)
    assert set(np.unique(times.not_found)) == {0, 1}
    assert (np.isnan(times.steps) == (times.not_found == 1)).all()


def leftward() -> Any:
    """Goes to the left for ever."""
    return as_policy(lambda obs: jnp.int32(0))


@pytest.mark.parametrize("id", IDS)
def test_a_preset_renders_and_describes_itself(id: str):
    with Session(*make(id)) as session:
        session.reset(seed=0)
        session.step(1)
        image = session.render()
        assert image.dtype == np.uint8
        assert len(np.unique(image.reshape(-1, 3), axis=0)) > 5
        assert "Find the source" in session.describe()
        assert session.parse("left") == 0


def test_three_dimensions_have_six_actions_and_a_picture():
    with Session(*make("SourceTracking-v0", dims=3, size=7)) as session:
        session.reset(seed=0)
        for action in range(6):
            session.step(action)
        assert session.render().ndim == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dims": 4}, "dims"),
        ({"length": 0.5}, "length"),
        ({"rate": -1.0}, "rate"),
        ({"size": 2}, "size"),
        ({"num_hits": 1}, "num_hits"),
        ({"observation": "image"}, "observation"),
        ({"draw_source": 1}, "draw_source"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str):
    with pytest.raises(ValidationError, match=message):
        isotropic(**dict[str, Any]({"size": 7, "num_hits": 3, **arguments}))


def test_params_are_vmapped_and_differentiable():
    env, params = make_small(draw_source=False)

    def surprise(rate: Any) -> Any:
        changed = jax.tree.map(jnp.asarray, params)
        changed = type(params)(type(params.hits)(changed.hits.length, rate), changed.max_steps)
        _, state = env.reset(random.key(0), changed)
        return env.step(random.key(1), state, jnp.int32(0), changed)[1].belief[0, 0]

    rates = jnp.array([0.5, 1.0, 2.0])
    slopes = jax.vmap(jax.grad(surprise))(rates)
    finite = (jax.vmap(surprise)(rates + 1e-2) - jax.vmap(surprise)(rates - 1e-2)) / 2e-2
    np.testing.assert_allclose(slopes, finite, rtol=0.05, atol=1e-6)
