"""One environment as a gymnasium.Env."""

import copy
import inspect
import pickle
import warnings
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from tests.ids import ALL, mark_slow

from tropism import (
    Environment,
    EnvironmentState,
    EnvParams,
    Record,
    Session,
    StateError,
    ValidationError,
    make,
)
from tropism.core.host import Host
from tropism.gym import GymEnv, to_gymnasium
from tropism.gym.env import has_picture


def cartpole(**arguments: Any) -> GymEnv:
    env, params = make("CartPole-v1")
    return to_gymnasium(env, params, **arguments)


def through_pickle(env: Any) -> Any:
    return pickle.loads(pickle.dumps(env))


def pendulum() -> GymEnv:
    return to_gymnasium(*make("Pendulum-v1"))


@pytest.mark.slow
@pytest.mark.parametrize("id", mark_slow(ALL))
def test_check_env_passes_with_its_render_check_on(id: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with warnings.catch_warnings():
        # Unbounded boxes and the like: advice, not failures.
        warnings.filterwarnings("ignore", category=UserWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        check_env(gymnasium.make(f"tropism/{id}").unwrapped)


def test_signatures_are_gymnasiums():
    for name in ("reset", "step", "render", "close"):
        ours, theirs = (inspect.signature(getattr(kind, name)).parameters for kind in (GymEnv, gymnasium.Env))
        assert list(ours) == list(theirs)
        assert [p.kind for p in ours.values()] == [p.kind for p in theirs.values()]
        assert [p.default for p in ours.values()] == [p.default for p in theirs.values()]


def test_a_step_returns_plain_values_and_the_contract_info():
    env = cartpole()
    obs, info = env.reset(seed=np.int64(7))
    assert info == {"seed": 7, "step_count": 0, "episode_count": 1, "total_reward": 0.0}
    assert env.observation_space.contains(obs)
    _, reward, terminated, truncated, info = env.step(1)
    assert type(reward) is float
    assert type(terminated) is bool
    assert type(truncated) is bool
    assert info == {"seed": 7, "step_count": 1, "episode_count": 1, "total_reward": 1.0}
    assert env.metadata == {"render_modes": ["human", "rgb_array"], "render_fps": 30}


def test_info_counts_episodes_and_drops_the_seed():
    env = cartpole()
    env.reset(seed=7)
    env.step(1)
    _, info = env.reset()
    assert info == {"seed": None, "step_count": 0, "episode_count": 2, "total_reward": 0.0}
    assert env.step(0)[4] == {"seed": None, "step_count": 1, "episode_count": 2, "total_reward": 1.0}
    assert env.reset(seed=0)[1]["episode_count"] == 1


def test_total_reward_is_the_sum_of_the_rewards():
    env = pendulum()
    env.reset(seed=0)
    total = 0.0
    for _ in range(20):
        _, reward, _, _, info = env.step(env.action_space.sample())
        total += reward
        assert info["total_reward"] == total


def test_the_environment_info_is_included_and_copied():
    env = to_gymnasium(*make("ConnectFour-v0"))
    _, first = env.reset(seed=0)
    assert first["legal_actions"].all()
    info = env.step(3)[4]
    assert set(info) == {"legal_actions", "winner", "seed", "step_count", "episode_count", "total_reward"}
    assert info["legal_actions"] is not first["legal_actions"]


def test_lifecycle_and_episode_id_are_attributes():
    env = cartpole()
    assert env.lifecycle is EnvironmentState.CREATED
    env.reset(seed=0)
    first = env.episode_id
    assert env.lifecycle is EnvironmentState.READY
    while not env.step(0)[2]:
        pass
    assert env.lifecycle is EnvironmentState.TERMINATED
    env.reset(seed=0)
    assert env.episode_id != first
    assert isinstance(env.session, Session)


@pytest.mark.parametrize("call", [lambda env: env.step(0), lambda env: env.render()], ids=["step", "render"])
def test_calls_before_the_first_reset_raise(call: Any):
    with pytest.raises(StateError, match="CREATED; call reset"):
        call(cartpole(render_mode="rgb_array"))


def test_a_step_after_the_end_raises():
    env = cartpole()
    env.reset(seed=0)
    while not env.step(0)[2]:
        pass
    steps = env.session.step_count
    with pytest.raises(StateError, match="TERMINATED; call reset"):
        env.step(0)
    assert env.session.step_count == steps


def test_calls_after_close_raise_except_close():
    env = cartpole()
    env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(StateError, match="CLOSED"):
        env.reset(seed=0)
    with pytest.raises(StateError, match="CLOSED"):
        env.step(0)


@pytest.mark.parametrize("seed", [True, -1, 1.0, "1", [1], np.float32(2)])
def test_a_bad_seed_is_rejected_and_changes_nothing(seed: Any):
    env = cartpole()
    env.reset(seed=5)
    env.step(1)
    episode, generator = env.episode_id, env.np_random
    with pytest.raises(ValidationError) as caught:
        env.reset(seed=seed)
    assert caught.value.name == "seed"
    assert env.episode_id == episode
    assert env.np_random is generator
    assert env.session.step_count == 1


@pytest.mark.parametrize("options", [{"gravity": 3}, {"params": {"gravty": 3}}, {"params": 3}, [("params", {})], "x"])
def test_bad_options_are_rejected(options: Any):
    env = cartpole()
    with pytest.raises(ValidationError):
        env.reset(seed=0, options=options)
    assert env.lifecycle is EnvironmentState.CREATED


def test_options_change_one_episode():
    env = cartpole()
    env.reset(seed=0, options={"params": {"max_steps": 1}})
    assert env.step(0)[3] is True
    env.reset(seed=0)
    assert env.step(0)[3] is False


@pytest.mark.parametrize("action", [True, 1.0, 2, -1, np.array([1]), np.float32(1), "1", None, float("nan")])
def test_a_bad_discrete_action_is_rejected_and_changes_nothing(action: Any):
    env, twin = cartpole(), cartpole()
    env.reset(seed=0)
    twin.reset(seed=0)
    with pytest.raises(ValidationError) as caught:
        env.step(action)
    assert caught.value.name == "action"
    assert "Discrete(2)" in str(caught.value)
    assert same(env.step(1), twin.step(1))


@pytest.mark.parametrize("action", [1, np.int64(1), np.uint8(1), np.array(1)])
def test_any_integer_type_is_an_action(action: Any):
    env, twin = cartpole(), cartpole()
    env.reset(seed=0)
    twin.reset(seed=0)
    assert same(env.step(action), twin.step(1))


@pytest.mark.parametrize(
    "action",
    [[float("nan")], [2.1], [-np.inf], [[0.0]], 0.0, [True], ["0"], None, [0.0, 0.0], np.array([1j])],
    ids=str,
)
def test_a_bad_box_action_is_rejected_and_changes_nothing(action: Any):
    env, twin = pendulum(), pendulum()
    env.reset(seed=0)
    twin.reset(seed=0)
    with pytest.raises(ValidationError):
        env.step(action)
    assert same(env.step([0.5]), twin.step([0.5]))


@pytest.mark.parametrize("action", [np.array([1.0]), np.array([1], np.int8), [1], np.array([1.0], np.float16)], ids=str)
def test_a_box_action_of_any_real_dtype_is_cast(action: Any):
    env, twin = pendulum(), pendulum()
    env.reset(seed=0)
    twin.reset(seed=0)
    assert same(env.step(action), twin.step(np.array([1.0], np.float32)))


def test_observations_are_writable_copies():
    env = cartpole()
    obs, _ = env.reset(seed=0)
    kept = obs.copy()
    after = env.step(1)[0]
    assert (obs == kept).all()
    obs[:] = 9
    after[:] = 9
    assert env.step(1)[0].max() < 9


def test_spaces_never_change():
    env = cartpole()
    spaces = env.observation_space, env.action_space
    env.reset(seed=0)
    env.step(0)
    assert spaces == (env.observation_space, env.action_space)
    assert spaces[0] is env.observation_space


def test_the_generator_is_seeded_as_gymnasium_seeds_it():
    env = cartpole()
    env.reset(seed=11)
    assert env.np_random.random() == np.random.Generator(np.random.PCG64(np.random.SeedSequence(11))).random()


def test_unseeded_environments_differ():
    first, second = (cartpole().reset()[0] for _ in range(2))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("id", mark_slow(ALL))
def test_copies_during_an_episode_continue_identically(id: str):
    drawn = has_picture(make(id)[0])
    env: Any = gymnasium.make(f"tropism/{id}", render_mode="rgb_array" if drawn else None)
    env.reset(seed=3)
    env.action_space.seed(3)
    for _ in range(3):
        env.step(env.action_space.sample())
    twins = [copy.deepcopy(env), through_pickle(env)]
    assert all(twin.unwrapped.session is not env.unwrapped.session for twin in twins)
    for _ in range(3):
        if env.unwrapped.lifecycle is not EnvironmentState.READY:
            first = env.reset()
            assert all(same(first, twin.reset()) for twin in twins)
        action = env.action_space.sample()
        expected = env.step(action)
        assert all(same(expected, twin.step(action)) for twin in twins)
    assert not drawn or all(np.array_equal(env.render(), twin.render()) for twin in twins)


def test_copies_before_the_first_reset_and_after_close():
    env = cartpole()
    assert copy.deepcopy(env).lifecycle is EnvironmentState.CREATED
    env.close()
    assert copy.deepcopy(env).lifecycle is EnvironmentState.CLOSED


def test_rgb_array_does_not_change_the_episode():
    env, twin = cartpole(render_mode="rgb_array"), cartpole()
    env.reset(seed=0)
    twin.reset(seed=0)
    picture = env.render()
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert picture.shape[2] == 3
    assert same(env.step(1), twin.step(1))


def test_render_without_a_mode_warns():
    env = cartpole()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None


@pytest.mark.parametrize("mode", ["ansi", "rgb", 3])
def test_an_unknown_render_mode_is_rejected(mode: Any):
    with pytest.raises(ValidationError, match="rgb_array"):
        cartpole(render_mode=mode)


@dataclass(frozen=True)
class Note:
    text: str
    length: int = 0


class Parrot(Environment):
    """Repeats its input: a host environment with typed messages."""

    host = Host()

    def default_params(self) -> EnvParams:
        return EnvParams()

    def reset(self, key: Any, params: Any) -> tuple[Note, int]:
        return Note(""), 0

    def step(self, key: Any, state: int, action: Note, params: Any) -> tuple[Note, int, float, bool, dict[str, Any]]:
        return Note(action.text, len(action.text)), state + 1, 1.0, state == 1, {"heard": [action.text]}

    def observation_space(self, params: Any) -> Record:
        return Record(Note)

    def action_space(self, params: Any) -> Record:
        return Record(Note)


def test_typed_messages_are_dicts():
    env = to_gymnasium(Parrot())
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    obs, reward, terminated, _, info = env.step({"text": "hi"})
    assert env.observation_space.contains(obs)
    assert obs == {"text": "hi", "length": np.array(2)}
    assert (reward, terminated, info["heard"]) == (1.0, False, ["hi"])
    assert env.step(env.action_space.sample())[2] is True
    with pytest.raises(StateError):
        env.step({"text": "hi"})


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and one == other
