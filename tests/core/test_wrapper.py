"""Wrappers forward every member of an environment."""

from typing import Any

import pytest
from tests.core.lines import HostLine, Line

from tropism import Environment, Host, Language, Session, Wrapper, frame_stack, make, time_limit
from tropism.isolation import isolate
from tropism.isolation.environment import IsolatedEnvironment

DERIVED = {"pure", "traits"}  # from `host`
OF_THE_CLASS = {"unavailable_reason"}  # needs no instance


def members(cls: type) -> set[str]:
    return {name for name in vars(cls) if not name.startswith("_") and name != "abstract"}


def test_a_wrapper_forwards_every_member():
    assert members(Environment) - DERIVED - OF_THE_CLASS == members(Wrapper) - {"env", "unwrap"}


class Plain(Wrapper):
    """Changes nothing."""


@pytest.mark.parametrize("id", ["ConnectFour-v0", "PlumeNav-v0", "Echo-v0", "Chat-v0"])
def test_a_wrapped_environment_runs_the_same_episode(id: str):
    env, params = make(id)
    wrapped = Plain(env)
    assert (wrapped.host, wrapped.endless, wrapped.language) == (env.host, env.endless, env.language)
    assert (wrapped.pure, wrapped.traits, wrapped.reset_options) == (env.pure, env.traits, env.reset_options)
    with Session(env, params) as plain, Session(wrapped, params) as session:
        assert str(session.reset(seed=3)) == str(plain.reset(seed=3))
        assert session.describe() == plain.describe()
        assert str(session.render()) == str(plain.render())
        assert repr(session) == repr(plain)


def test_a_transform_keeps_messages_and_clicks():
    env, _ = make("ConnectFour-v0")
    assert time_limit(env, 9).language == env.language
    stacked = frame_stack(env, 2).language
    assert (stacked.clicks, stacked.action_type) == (env.language.clicks, env.language.action_type)
    assert (stacked.observation_type, stacked.message) == (None, None)


def test_an_isolated_environment_has_the_traits_of_the_wrapped_one():
    class Quick(HostLine):
        host = Host(replayable=False, blocking=False)

    env = IsolatedEnvironment(Quick(), ())
    assert env.host == Host(replayable=False, blocking=False, isolated=True, interruptible=True)
    assert isolate(HostLine()).language == Language()


def test_a_host_environment_is_wrapped_but_not_transformed():
    class Louder(Wrapper):
        def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
            obs, state, reward, done, info = self.env.step(key, state, action, params)
            return obs, state, 2 * reward, done, info

    with Session(Louder(HostLine())) as louder, Session(HostLine()) as plain:
        louder.reset(seed=1)
        plain.reset(seed=1)
        assert louder.step(1).reward == 2 * plain.step(1).reward
    with pytest.raises(ValueError, match="a host environment cannot be transformed"):
        time_limit(HostLine(), 3)
    assert time_limit(Line(), 3).pure
