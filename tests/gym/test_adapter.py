"""A Gymnasium environment as a Tropism environment."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit, TransformObservation

from tropism import Box, Discrete, Session, StateError, ValidationError
from tropism.gym import from_gymnasium, to_gymnasium

IDS = ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Taxi-v4", "Blackjack-v1"]


class Reused(gymnasium.Env[Any, Any]):
    """Writes every observation into the same array and counts calls of close."""

    observation_space = spaces.Box(0, 10, (1,))
    action_space = spaces.Discrete(2)
    closed: list["Reused"]

    def __init__(self, closed: list[Any] | None = None):
        self.obs = np.zeros(1, np.float32)
        self.closed = [] if closed is None else closed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.obs[:] = (options or {}).get("start", 0)
        return self.obs, {"where": "start"}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.obs += 1
        return self.obs, 1, bool(self.obs[0] >= 4), bool(self.obs[0] >= 3), {"where": "inside"}

    def close(self) -> None:
        self.closed.append(self)


@pytest.mark.parametrize("id", IDS)
def test_the_episode_is_that_of_gymnasium(id: str):
    theirs, session = gymnasium.make(id), Session(from_gymnasium(id))
    obs, info = theirs.reset(seed=42)
    first = session.reset(seed=42)
    assert np.array_equal(first.obs, obs)
    assert set(first.info) == set(info)
    theirs.action_space.seed(1)
    for _ in range(50):
        action = theirs.action_space.sample()
        obs, reward, terminated, truncated, info = theirs.step(action)
        then = session.step(action)
        assert np.array_equal(then.obs, obs)
        assert (then.reward, then.terminated, then.truncated) == (float(reward), terminated, truncated)
        assert set(then.info) == set(info)
        if terminated or truncated:
            break


def test_the_spaces_are_converted():
    env = from_gymnasium("CartPole-v1")
    params = env.default_params()
    assert env.action_space(params) == Discrete(2)
    assert isinstance(env.observation_space(params), Box)
    assert env.pure is False


def test_equal_sources_make_equal_environments():
    assert from_gymnasium("CartPole-v1") == from_gymnasium("CartPole-v1")
    assert hash(from_gymnasium("CartPole-v1")) == hash(from_gymnasium(gymnasium.make("CartPole-v1")))
    assert from_gymnasium("CartPole-v1") != from_gymnasium("Pendulum-v1")
    assert from_gymnasium(Reused) == from_gymnasium(Reused)
    assert from_gymnasium(Reused()) != from_gymnasium(Reused())


def test_an_instance_with_a_spec_is_remade_with_its_arguments_and_wrappers():
    instance = TimeLimit(gymnasium.make("Pendulum-v1", g=1.0), 5)
    instance.reset(seed=0)
    session = Session(from_gymnasium(instance))
    session.reset(seed=0)
    steps = 0
    while not session.step([0.0]).truncated:
        steps += 1
    assert steps == 4
    assert session._engine.state().env.unwrapped.g == 1.0  # pyright: ignore
    instance.step(np.array([0.0], np.float32))


def test_an_instance_without_a_spec_is_copied():
    odd = TransformObservation(gymnasium.make("CartPole-v1"), lambda obs: obs * 0, None)
    session = Session(from_gymnasium(odd))
    assert not session.reset(seed=0).obs.any()
    plain = Reused()
    session = Session(from_gymnasium(plain))
    session.reset(seed=0)
    session.step(0)
    assert plain.obs[0] == 0


def test_observations_are_copies():
    session = Session(from_gymnasium(Reused))
    first = session.reset(seed=0)
    second = session.step(0)
    third = session.step(0)
    assert (first.obs[0], second.obs[0], third.obs[0]) == (0, 1, 2)
    assert (first.info, second.info) == ({"where": "start"}, {"where": "inside"})


def test_both_flags_are_kept_apart():
    session = Session(from_gymnasium(Reused))
    session.reset(seed=0)
    session.step(0)
    session.step(0)
    last = session.step(0)
    assert (last.terminated, last.truncated) == (False, True)
    with pytest.raises(StateError):
        session.step(0)


def test_options_are_passed_to_the_reset():
    session = Session(from_gymnasium(Reused))
    assert session.reset(seed=0, options={"start": 2}).obs[0] == 2
    assert session.reset(seed=0).obs[0] == 0


def test_a_fork_and_a_snapshot_continue_identically():
    env = from_gymnasium("CartPole-v1")
    session = Session(env)
    session.reset(seed=9)
    for action in (0, 1, 1):
        session.step(action)
    twins = [session.fork(), Session.restore(session.snapshot(), env)]
    for action in (1, 0, 0):
        then = session.step(action)
        for twin in twins:
            assert np.array_equal(twin.step(action).obs, then.obs)
    with pytest.raises(ValidationError, match="draws its randomness when it is reset"):
        session.fork(seed=1)


def test_each_episode_s_instance_is_closed():
    closed: list[Any] = []
    session = Session(from_gymnasium(lambda: Reused(closed)))
    probes = len(closed)
    session.reset(seed=0)
    session.reset(seed=1)
    assert len(closed) == probes + 1
    session.close()
    assert len(closed) == probes + 2


def test_pictures_if_the_environment_renders(monkeypatch: pytest.MonkeyPatch):
    session = Session(from_gymnasium("FrozenLake-v1"))
    session.reset(seed=0)
    assert session.render().shape[2] == 3
    plain = Session(from_gymnasium(Reused))
    plain.reset(seed=0)
    assert plain.render() is None


def test_the_round_trip_gives_the_same_environment():
    env, theirs = to_gymnasium(from_gymnasium("CartPole-v1")), gymnasium.make("CartPole-v1")
    assert np.array_equal(env.reset(seed=3)[0], theirs.reset(seed=3)[0])
    assert np.array_equal(env.step(1)[0], theirs.step(1)[0])
    assert env.observation_space == theirs.observation_space


@pytest.mark.parametrize("source", [3, None, ["CartPole-v1"]])
def test_other_objects_are_rejected(source: Any):
    with pytest.raises(ValidationError, match="a Gymnasium id"):
        from_gymnasium(source)


def test_a_factory_of_something_else_is_rejected():
    with pytest.raises(ValidationError, match=r"returns a gymnasium\.Env"):
        from_gymnasium(dict)
