"""The five control tasks compared with Gymnasium, transition by transition from the same state."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control import continuous_mountain_car
from jax import random

from tropism.core.environment import Environment
from tropism.core.spaces import Discrete
from tropism.envs.acrobot import Acrobot
from tropism.envs.cartpole import CartPole, CartPoleParams
from tropism.envs.mountain_car import MountainCar
from tropism.envs.mountain_car_continuous import MountainCarContinuous
from tropism.envs.pendulum import Pendulum, upright_error
from tropism.errors import ValidationError

EPISODES = 100
ULP = 2.0**-23  # of a float32 near 1


class Case(NamedTuple):
    env: Environment
    id: str
    fields: tuple[str, ...]
    favourite: Callable[[Any], Any]  # an action that makes the episode reach its end, taken half the time
    tolerance: float
    terminates: bool = True


CASES = [
    Case(CartPole(), "CartPole-v1", ("x", "x_dot", "theta", "theta_dot"), lambda obs: obs[2] > 0, 1e-6),
    Case(Pendulum(), "Pendulum-v1", ("theta", "theta_dot"), lambda obs: 1.7 * obs[2:], 1e-5, False),
    Case(MountainCar(), "MountainCar-v0", ("position", "velocity"), lambda obs: 1 + jnp.sign(obs[1]), 1e-6),
    Case(
        MountainCarContinuous(),
        "MountainCarContinuous-v0",
        ("position", "velocity"),
        lambda obs: 1.5 * jnp.sign(obs[1:]),
        1e-6,
    ),
    Case(
        Acrobot(),
        "Acrobot-v1",
        ("theta_1", "theta_2", "theta_dot_1", "theta_dot_2"),
        lambda obs: 1 - jnp.sign(obs[4]),
        1e-5,
    ),
]
every_case = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])


class Transition(NamedTuple):
    state: Any
    action: Any
    obs: Any
    after: Any
    reward: Any
    terminated: Any
    truncated: Any


def rollout(case: Case, key: Any) -> Transition:
    """The transitions of one episode and some after its end."""
    env: Any = case.env
    params = env.default_params()

    def turn(carry: Any, key: Any) -> tuple[Any, Transition]:
        obs, state = carry
        action_key, choice_key, step_key = random.split(key, 3)
        action = env.action_space(params).sample(action_key)
        favourite = case.favourite(obs).astype(action.dtype)
        action = jnp.where(random.bernoulli(choice_key), favourite, action)
        obs, after, reward, _, info = env.step(step_key, state, action, params)
        return (obs, after), Transition(state, action, obs, after, reward, info["terminated"], info["truncated"])

    start_key, turn_key = random.split(key)
    return jax.lax.scan(turn, env.reset(start_key, params), random.split(turn_key, params.max_steps))[1]


def transitions(case: Case) -> Transition:
    """All transitions of 100 episodes, one after the other, as host arrays."""
    episodes = jax.jit(jax.vmap(lambda key: rollout(case, key)))(random.split(random.key(0), EPISODES))
    episodes = jax.tree.map(np.asarray, episodes)
    ended = episodes.terminated | episodes.truncated
    lasting = np.cumsum(ended, axis=1) - ended == 0
    return jax.tree.map(lambda leaf: leaf[lasting], episodes)


def vector(state: Any, fields: tuple[str, ...]) -> np.ndarray[Any, Any]:
    return np.stack([getattr(state, field) for field in fields], axis=-1).astype(np.float64)


def answer(twin: Any, start: Any, action: Any) -> tuple[Any, Any, float, bool]:
    """Gymnasium's transition from the same state and action."""
    twin.state = start.copy()
    twin.steps_beyond_terminated = None
    obs, reward, terminated, _, _ = twin.step(action)
    return np.array(twin.state, np.float64), obs, float(reward), terminated


def difference(case: Case, ours: Any, theirs: Any) -> Any:
    gap = np.abs(ours - theirs)
    if case.id == "Acrobot-v1":
        gap[:, :2] = np.minimum(gap[:, :2], np.abs(2 * np.pi - gap[:, :2]))  # an angle near ±pi may wrap either way
    return gap.max()


def compare(case: Case, twin: Any, tolerance: float) -> None:
    ours = transitions(case)
    starts = vector(ours.state, case.fields)
    # Gymnasium would compute with an action of single precision in single precision.
    actions = ours.action if ours.action.dtype.kind == "i" else ours.action.astype(np.float64)
    theirs = [answer(twin, start, action) for start, action in zip(starts, actions, strict=True)]
    after, obs, reward, terminated = (np.array(column) for column in zip(*theirs, strict=True))
    assert difference(case, vector(ours.after, case.fields), after) <= tolerance
    np.testing.assert_allclose(ours.obs, obs, rtol=ULP, atol=max(tolerance, ULP))
    np.testing.assert_allclose(ours.reward, reward, rtol=ULP / 2, atol=tolerance)
    np.testing.assert_array_equal(ours.terminated, terminated)
    assert ours.terminated.any() == case.terminates
    assert ours.obs.dtype == ours.reward.dtype == np.float32


@every_case
def test_every_step_agrees_with_gymnasium(case: Case):
    compare(case, gymnasium.make(case.id).unwrapped, case.tolerance)


@pytest.mark.slow
@every_case
def test_every_step_agrees_with_gymnasium_in_double_precision(case: Case, monkeypatch: pytest.MonkeyPatch):
    twin = gymnasium.make(case.id).unwrapped
    # Gymnasium computes this state in double precision, then rounds it to single; here the rounding is left out.
    doubles = SimpleNamespace(float32=np.float64, array=np.array)
    monkeypatch.setattr(continuous_mountain_car, "np", doubles)
    with jax.enable_x64(True):
        _, state = case.env.reset(random.key(0), case.env.default_params())
        assert getattr(state, case.fields[0]).dtype == jnp.float64
        assert state.time.dtype == jnp.int32
        compare(case, twin, 1e-12)


@every_case
def test_spaces_are_gymnasiums(case: Case):
    twin: Any = gymnasium.make(case.id)
    params: Any = case.env.default_params()
    observation_space: Any = case.env.observation_space(params)
    assert np.array_equal(observation_space.low, twin.observation_space.low)
    assert np.array_equal(observation_space.high, twin.observation_space.high)
    action_space: Any = case.env.action_space(params)
    if isinstance(action_space, Discrete):
        assert action_space.n == twin.action_space.n
    else:
        assert action_space.shape == twin.action_space.shape
        assert action_space.high == twin.action_space.high
    assert params.max_steps == twin.spec.max_episode_steps


@every_case
def test_starts_cover_gymnasiums_range(case: Case):
    params = case.env.default_params()
    _, ours = jax.vmap(case.env.reset, (0, None))(random.split(random.key(1), 2000), params)
    twin: Any = gymnasium.make(case.id).unwrapped
    theirs = [twin.reset(seed=seed) and np.array(twin.state, np.float64) for seed in range(2000)]
    starts = vector(ours, case.fields)
    span = np.ptp(theirs, axis=0)
    np.testing.assert_allclose(starts.min(0), np.min(theirs, 0), atol=0.01 * span.max())
    np.testing.assert_allclose(starts.max(0), np.max(theirs, 0), atol=0.01 * span.max())
    np.testing.assert_allclose(starts.std(0), np.std(theirs, 0), atol=0.03 * span.max())


@every_case
def test_the_step_limit_truncates(case: Case):
    params = replace(case.env.default_params(), max_steps=2)
    _, state = case.env.reset(random.key(0), params)
    action = case.env.action_space(params).sample(random.key(1))
    _, state, _, done, info = case.env.step(random.key(2), state, action, params)
    assert not done
    assert not info["truncated"]
    _, state, _, done, info = case.env.step(random.key(2), state, action, params)
    assert done
    assert info["truncated"]
    assert not info["terminated"]


def test_both_flags_may_be_true_on_the_last_step():
    env, params = CartPole(), CartPoleParams(max_steps=1, x_threshold=0.0)
    _, state = env.reset(random.key(0), params)
    *_, done, info = env.step(random.key(0), state, 0, params)
    assert done
    assert info["terminated"]
    assert info["truncated"]


@pytest.mark.slow
@every_case
def test_step_keeps_shapes_and_dtypes_with_any_kind_of_number_and_key(case: Case):
    env, params = case.env, case.env.default_params()
    kinds = [params, jax.tree.map(jnp.asarray, params), jax.tree.map(np.asarray, params)]
    for key in (random.key(0), random.PRNGKey(0)):
        for numbers in kinds:
            obs, state = jax.jit(env.reset)(key, numbers)
            after = jax.jit(env.step)(key, state, env.action_space(params).sample(key), numbers)
            assert jax.eval_shape(lambda leaf: leaf, (obs, state)) == jax.eval_shape(lambda leaf: leaf, after[:2])
            assert [leaf.weak_type for leaf in jax.tree.leaves(state)] == [False] * len(jax.tree.leaves(state))
            assert [leaf.weak_type for leaf in jax.tree.leaves(after[1])] == [False] * len(jax.tree.leaves(state))
            assert (after[2].dtype, after[3].dtype) == (jnp.float32, jnp.bool_)


@every_case
def test_spaces_work_under_a_trace(case: Case):
    env, params = case.env, case.env.default_params()

    def sample(key: Any, params: Any) -> Any:
        space = env.observation_space(params)
        return space.contains(space.sample(key))

    assert jax.jit(sample)(random.key(0), params)


def test_a_thousand_gravities_and_pole_masses_compile_once():
    env, traces = CartPole(), []
    _, state = env.reset(random.key(0), CartPoleParams())
    gravities, masses = jnp.linspace(1.0, 20.0, 1000), jnp.linspace(0.05, 2.0, 1000)

    def after(gravity: Any, masspole: Any) -> Any:
        traces.append(gravity)
        return env.step(random.key(0), state, 1, replace(CartPoleParams(), gravity=gravity, masspole=masspole))[1]

    batched = jax.jit(jax.vmap(after))
    together = batched(gravities, masses)
    batched(gravities + 1, masses + 1)
    assert len(traces) == 1
    assert len(np.unique(np.asarray(together.theta_dot))) > 900
    twin: Any = gymnasium.make("CartPole-v1").unwrapped
    for i in (0, 137, 500, 999):
        # Gymnasium stores values derived from the masses, so they are set too.
        twin.gravity, twin.masspole = float(gravities[i]), float(masses[i])
        twin.total_mass, twin.polemass_length = twin.masspole + 1.0, twin.masspole * 0.5
        alone, *_ = answer(twin, vector(state, CASES[0].fields), 1)
        ours = vector(jax.tree.map(lambda leaf, i=i: leaf[i], together), CASES[0].fields)
        np.testing.assert_allclose(ours, alone, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("case", [CASES[1], CASES[0], CASES[4]], ids=lambda case: case.id)
def test_smooth_physics_has_the_gradient_of_finite_differences(case: Case):
    env = case.env
    with jax.enable_x64(True):
        _, state = env.reset(random.key(3), env.default_params())
        action = env.action_space(env.default_params()).sample(random.key(1))

        def speed(gravity: Any) -> Any:
            params = replace(env.default_params(), gravity=gravity)
            return getattr(env.step(random.key(0), state, action, params)[1], case.fields[-1])

        slope = (speed(9.0 + 1e-5) - speed(9.0 - 1e-5)) / 2e-5
        assert abs(slope) > 1e-4
        np.testing.assert_allclose(jax.grad(speed)(9.0), slope, rtol=1e-6)


def test_the_angle_from_upright_is_the_nearest_turn():
    angles = np.linspace(-80, 80, 4001, dtype=np.float32)
    exact = angles.astype(np.float64)
    np.testing.assert_allclose(upright_error(angles), np.arctan2(np.sin(exact), np.cos(exact)), atol=3e-7)


@pytest.mark.parametrize(
    ("env", "text", "action"),
    [
        (CartPole(), "left", 0),
        (CartPole(), " Right.", 1),
        (CartPole(), "1", 1),
        (MountainCar(), "none", 1),
        (MountainCar(), "right", 2),
        (Acrobot(), "positive", 2),
        (Pendulum(), "-1.5", [-1.5]),
        (Pendulum(), "[0.5]", [0.5]),
        (MountainCarContinuous(), "1", [1.0]),
    ],
)
def test_words_are_parsed_as_actions(env: Environment, text: str, action: Any):
    assert np.array_equal(env.parse(text, env.default_params()), action)


@pytest.mark.parametrize(
    ("env", "text", "expected"),
    [
        (CartPole(), "jump", "left, right"),
        (CartPole(), "2", "left, right"),
        (MountainCar(), "", "left, none, right"),
        (Pendulum(), "7", "a number"),
        (Pendulum(), "nan", "a number"),
        (MountainCarContinuous(), "hard left", "a number"),
    ],
)
def test_other_words_are_rejected(env: Environment, text: str, expected: str):
    with pytest.raises(ValidationError) as error:
        env.parse(text, env.default_params())
    assert error.value.value == text
    assert expected in error.value.expected


@every_case
@pytest.mark.parametrize("host", [np.asarray, lambda leaf: leaf.item()], ids=["numpy", "python"])  # pyright: ignore
def test_the_description_contains_task_numbers_and_actions(case: Case, host: Callable[[Any], Any]):
    params = case.env.default_params()
    obs, state = case.env.reset(random.key(0), params)
    held = object.__new__(type(state))  # a state of host values, as passed by a session
    for name in ("time", *case.fields):
        object.__setattr__(held, name, host(getattr(state, name)))
    words = case.env.describe(held, np.asarray(obs), params)
    assert "Step 0 of" in words
    assert "Action" in words
    assert any(f"{abs(float(value)):.3f}"[:5] in words for value in vector(state, case.fields))
