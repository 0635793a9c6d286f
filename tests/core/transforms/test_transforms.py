"""Transforms in every order, compared with plain Python loops."""

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from tests.core.lines import HostLine, Line, LineParams

from tropism.core.environment import Environment
from tropism.core.episode import NEXT_EPISODE
from tropism.core.session.session import Session
from tropism.core.spaces import Box, Discrete, MultiDiscrete
from tropism.core.transforms import (
    auto_reset,
    episode_stats,
    frame_stack,
    grayscale,
    normalize_obs,
    randomize_params,
    resize,
    scale_reward,
    time_limit,
)
from tropism.envs.cartpole import CartPole
from tropism.envs.pixel_grid_world import PixelGridWorld
from tropism.envs.plume.nav import PlumeNav
from tropism.errors import ValidationError

PARAMS = LineParams(max_steps=5)
STEPS = 14
KEYS = random.split(random.key(1), STEPS + 1)
ACTIONS = np.random.default_rng(0).integers(0, 3, STEPS)
plain_reset = jax.jit(lambda key: Line().reset(key, PARAMS))
plain_step = jax.jit(lambda key, state, action: Line().step(key, state, action, PARAMS))


class Step(NamedTuple):
    obs: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class LoopLine:
    """The walk as a mutable object; the loops below wrap it like Gymnasium's wrappers."""

    def reset(self, key: Any) -> Any:
        obs, self.state = plain_reset(key)
        return np.asarray(obs)

    def step(self, key: Any, action: Any) -> Step:
        obs, self.state, reward, _, info = plain_step(key, self.state, action)
        return Step(np.asarray(obs), float(reward), bool(info["terminated"]), bool(info["truncated"]), {})


class Loop:
    def __init__(self, inner: Any):
        self.inner = inner

    def reset(self, key: Any) -> Any:
        return self.inner.reset(key)

    def step(self, key: Any, action: Any) -> Step:
        return self.inner.step(key, action)


class LoopLimit(Loop):
    def reset(self, key: Any) -> Any:
        self.time = 0
        return super().reset(key)

    def step(self, key: Any, action: Any) -> Step:
        self.time += 1
        step = super().step(key, action)
        return step._replace(truncated=step.truncated or self.time >= 3)


class LoopScale(Loop):
    def step(self, key: Any, action: Any) -> Step:
        step = super().step(key, action)
        return step._replace(reward=step.reward * 2)


class LoopStats(Loop):
    def reset(self, key: Any) -> Any:
        self.rewards: list[float] = []
        return super().reset(key)

    def step(self, key: Any, action: Any) -> Step:
        step = super().step(key, action)
        self.rewards.append(step.reward)
        stats = {"episode_return": sum(self.rewards), "episode_length": len(self.rewards)}
        return step._replace(info={**step.info, **stats})


class LoopStack(Loop):
    def reset(self, key: Any) -> Any:
        first = super().reset(key)
        self.frames = deque([first, first], 2)
        return np.stack(self.frames)

    def step(self, key: Any, action: Any) -> Step:
        step = super().step(key, action)
        self.frames.append(step.obs)
        return step._replace(obs=np.stack(self.frames))


class LoopNormalize(Loop):
    """Keeps the observations of all episodes, with a weak unit prior."""

    def __init__(self, inner: Any):
        super().__init__(inner)
        self.seen: list[Any] = []

    def normalize(self, obs: Any) -> Any:
        self.seen.append(np.asarray(obs, np.float64))
        weights = np.array([1e-4] + [1.0] * len(self.seen)) / (1e-4 + len(self.seen))
        mean = np.tensordot(weights[1:], np.stack(self.seen), 1)
        square = weights[0] + np.tensordot(weights[1:], np.stack(self.seen) ** 2, 1)
        return (obs - mean) / np.sqrt(square - mean**2 + 1e-8)

    def reset(self, key: Any) -> Any:
        return self.normalize(super().reset(key))

    def step(self, key: Any, action: Any) -> Step:
        step = super().step(key, action)
        return step._replace(obs=self.normalize(step.obs))


PAIRS: dict[str, tuple[Callable[[Environment], Environment], type[Loop]]] = {
    "limit": (lambda env: time_limit(env, 3), LoopLimit),
    "scale": (lambda env: scale_reward(env, 2.0), LoopScale),
    "stats": (episode_stats, LoopStats),
    "stack": (lambda env: frame_stack(env, 2), LoopStack),
    "normalize": (normalize_obs, LoopNormalize),
}
ORDERS = list(itertools.permutations(PAIRS, 2))


def run_loop(loop: Any, mode: str) -> list[tuple[Any, Step]]:
    """(final_obs, step) for each step, with episodes restarted according to `mode`."""
    loop.reset(KEYS[0])
    results: list[tuple[Any, Step]] = []
    over = False
    for key, action in zip(KEYS[1:], ACTIONS, strict=True):
        if over and mode == "next_step":
            obs = loop.reset(random.fold_in(key, NEXT_EPISODE))
            results.append((obs, Step(obs, 0.0, False, False, {})))
            over = False
            continue
        step = loop.step(key, action)
        over = step.terminated or step.truncated
        final_obs = step.obs
        if over and mode == "same_step":
            step = step._replace(obs=loop.reset(random.fold_in(key, NEXT_EPISODE)))
        results.append((final_obs, step))
    return results


def run_compiled(env: Environment) -> Any:
    def body(state: Any, xs: Any) -> Any:
        obs, state, reward, _, info = env.step(xs[0], state, xs[1], PARAMS)
        return state, (obs, reward, info)

    @jax.jit
    def run() -> Any:
        _, state = env.reset(KEYS[0], PARAMS)
        return jax.lax.scan(body, state, (KEYS[1:], jnp.asarray(ACTIONS)))[1]

    return jax.device_get(run())


def check_against_loop(names: tuple[str, ...], mode: Any):
    env, loop = Line(), LoopLine()
    for name in names:
        env, loop = PAIRS[name][0](env), PAIRS[name][1](loop)
    obs, reward, info = run_compiled(auto_reset(env, mode))
    assert (info["terminated"] | info["truncated"]).sum() >= 2  # several episodes
    for i, (final_obs, step) in enumerate(run_loop(loop, mode)):
        np.testing.assert_allclose(obs[i], step.obs, 1e-4, 1e-4)
        np.testing.assert_allclose(reward[i], step.reward, 1e-5, 1e-5)
        assert (info["terminated"][i], info["truncated"][i]) == (step.terminated, step.truncated)
        if mode == "same_step":
            np.testing.assert_allclose(info["final_obs"][i], final_obs, 1e-4, 1e-4)
            for name, value in step.info.items():
                np.testing.assert_allclose(info["final_info"][name][i], value, 1e-5)
        for name, value in step.info.items():  # the statistics of the episode that the step belongs to
            np.testing.assert_allclose(info[name][i], value, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("names", ORDERS, ids="-".join)
def test_every_order_of_two_equals_a_loop(names: tuple[str, str]):
    check_against_loop(names, "same_step")


@pytest.mark.parametrize("names", [("limit", "stats"), ("normalize", "stack"), ("stats", "scale"), ()], ids="-".join)
def test_the_next_step_mode_equals_a_loop(names: tuple[str, ...]):
    check_against_loop(names, "next_step")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("names", list(itertools.permutations(PAIRS, 5))[::15], ids="-".join)
def test_orders_of_all_transforms_equal_a_loop(names: tuple[str, ...], mode: Any):
    check_against_loop(names, mode)


@pytest.mark.parametrize("names", ORDERS, ids="-".join)
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_the_position_of_auto_reset_does_not_matter(names: tuple[str, str], mode: Any):
    first, second = (PAIRS[name][0] for name in names)
    last = auto_reset(second(first(Line())), mode)
    assert second(auto_reset(first(Line()), mode)) == last
    assert second(first(auto_reset(Line(), mode))) == last


def test_the_last_auto_reset_wins():
    assert auto_reset(auto_reset(Line(), "same_step"), "next_step") == auto_reset(Line(), "next_step")
    assert auto_reset(auto_reset(Line()), "disabled") == Line()


def test_time_limit_truncates_and_does_not_terminate():
    session = Session(time_limit(Line(), 2), {"noise": 0.0})
    session.reset(seed=0)
    assert not session.step(1).truncated
    assert session.step(1)[2:4] == (False, True)


def test_params_are_drawn_for_each_episode_with_their_derived_constants():
    env = randomize_params(CartPole(), {"masspole": (0.05, 1.0), "gravity": lambda key: random.choice(key, 2) + 3.0})
    params = env.default_params()
    for seed in range(3):
        _, state = env.reset(random.key(seed), params)
        drawn = state.memory
        assert 0.05 <= drawn["masspole"] <= 1.0
        assert float(drawn["gravity"]) in (3.0, 4.0)
        obs, *_ = env.step(random.key(9), state, 1, params)
        known = CartPole().default_params().__class__(masspole=drawn["masspole"], gravity=drawn["gravity"])
        expected, *_ = CartPole().step(random.key(9), state.inner, 1, known)
        np.testing.assert_allclose(obs, expected, 1e-6)
    masses = {float(env.reset(random.key(seed), params)[1].memory["masspole"]) for seed in range(5)}
    assert len(masses) == 5


def test_nested_params_are_drawn_by_their_dotted_names():
    env = randomize_params(PlumeNav(), {"field.sigma": (5.0, 6.0), "goal_radius": (1.0, 2.0)})
    session = Session(env)
    session.reset(seed=0)
    x, y = session.step(0).info["agent_xy"]
    sigma = float(session._engine.state().memory["field.sigma"])  # pyright: ignore[reportPrivateUsage]
    assert 5.0 <= sigma <= 6.0
    expected = np.exp(-((x - 64) ** 2 + (y - 64) ** 2) / (2 * sigma**2))
    np.testing.assert_allclose(session.timestep.info["concentration_at_agent"], expected, rtol=1e-4)
    with pytest.raises(ValidationError, match="a field of Gaussian: source, sigma"):
        randomize_params(PlumeNav(), {"field.sigm": (5.0, 6.0)})


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_the_last_step_has_the_return_and_length_of_its_episode(mode: Any):
    env = auto_reset(episode_stats(time_limit(Line(), 3)), mode)
    _, states = jax.vmap(env.reset, (0, None))(KEYS[:4], PARAMS)
    actions, rewards, lengths = jnp.ones(4, jnp.int32), np.zeros(4), np.zeros(4, int)
    ended = 0
    for key in KEYS[1:8]:
        keys = random.split(key, 4)
        _, states, reward, done, info = jax.vmap(env.step, (0, 0, 0, None))(keys, states, actions, PARAMS)
        rewards, lengths = rewards + reward, lengths + (info["episode_length"] > 0)
        np.testing.assert_allclose(info["episode_return"][done], rewards[done], 1e-5)
        np.testing.assert_array_equal(info["episode_length"][done], lengths[done])
        rewards, lengths, ended = np.where(done, 0, rewards), np.where(done, 0, lengths), ended + int(done.sum())
    assert ended >= 4
    assert ("final_info" in info) == (mode == "same_step")  # pyright: ignore[reportPossiblyUnboundVariable]


def test_params_are_redrawn_at_an_automatic_reset():
    env = auto_reset(randomize_params(time_limit(Line(), 2), {"stride": (0.1, 1.0)}), "same_step")
    _, state = env.reset(random.key(0), PARAMS)
    strides = [float(state.inner.memory["stride"])]
    for key in random.split(random.key(1), 4):
        _, state, *_ = env.step(key, state, 1, PARAMS)
        strides.append(float(state.inner.memory["stride"]))
    assert strides[0] == strides[1] != strides[2] == strides[3] != strides[4]


def test_images_are_converted_to_gray_and_resized():
    env = resize(grayscale(PixelGridWorld(), keep_dim=True), 10, 12)
    params = env.default_params()
    space = env.observation_space(params)
    assert (space.shape, space.dtype) == ((10, 12, 1), np.uint8)
    obs, state = jax.jit(env.reset)(random.key(0), params)
    assert obs in space
    gray, _ = grayscale(PixelGridWorld()).reset(random.key(0), params)
    colour, _ = PixelGridWorld().reset(random.key(0), params)
    assert int(gray.max()) == 255
    goal = colour[-1, -1].astype(float) @ np.array([0.299, 0.587, 0.114])
    assert int(gray[-1, -1]) == round(float(goal))
    assert state.time == 0


class Side(Line):
    """The line, of which the agent sees on which side it is."""

    def observation(self, state: Any) -> Any:
        return jnp.asarray(state.x > 0, jnp.int32)

    def observation_space(self, params: Any) -> Discrete:
        return Discrete(2)


def test_whole_numbers_can_be_stacked():
    env = frame_stack(Side(), 3)
    obs, state = env.reset(random.key(0), PARAMS)
    assert obs in env.observation_space(PARAMS)
    obs, *_ = env.step(random.key(1), state, 2, PARAMS)
    assert obs in env.observation_space(PARAMS)
    assert env.observation_space(PARAMS) == MultiDiscrete([2, 2, 2])


def test_spaces_match_the_observations():
    assert frame_stack(Line(), 3).observation_space(PARAMS) == Box(-10.0, 10.0, (3, 1))
    assert normalize_obs(Line()).observation_space(PARAMS) == Box(-np.inf, np.inf, (1,))
    assert jax.jit(lambda p: jnp.asarray(frame_stack(CartPole(), 2).observation_space(p).contains(jnp.zeros((2, 4)))))(
        CartPole().default_params()
    )


@pytest.mark.parametrize(
    "build",
    [
        lambda: time_limit(Line(), 0),
        lambda: time_limit(Line(), 2.5),  # pyright: ignore[reportArgumentType]
        lambda: time_limit(Line(), True),
        lambda: scale_reward(Line(), float("nan")),
        lambda: scale_reward(Line(), "2"),  # pyright: ignore[reportArgumentType]
        lambda: frame_stack(Line(), 0),
        lambda: normalize_obs(Line(), 0.0),
        lambda: normalize_obs(HostLine()),
        lambda: grayscale(Line()),
        lambda: resize(Line(), 4, 4),
        lambda: resize(PixelGridWorld(), 0, 4),
        lambda: randomize_params(Line(), {}),
        lambda: randomize_params(Line(), {"mass": (0, 1)}),
        lambda: randomize_params(Line(), {"stride": (1, 0)}),
        lambda: randomize_params(Line(), {"stride": 3}),  # pyright: ignore[reportArgumentType]
        lambda: auto_reset(Line(), "always"),  # pyright: ignore[reportArgumentType]
        lambda: auto_reset(HostLine()),
        lambda: episode_stats(3),  # pyright: ignore[reportArgumentType]
    ],
)
@pytest.mark.usefixtures("untyped")
def test_invalid_arguments_are_rejected(build: Callable[[], Any]):
    with pytest.raises(ValidationError):
        build()
