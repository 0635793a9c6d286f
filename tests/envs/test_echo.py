"""Echo: messages, rewards, and that an episode never ends."""

import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tropism import Session, State, ValidationError, make
from tropism.wire.messages.echo import EchoAction, EchoObservation


def session() -> Session:
    return Session(*make("Echo-v0"))


@pytest.mark.slow
@given(st.lists(st.text(), max_size=5))
def test_every_message_is_returned_and_its_length_is_the_reward(messages: list[str]):
    echo = session()
    first = echo.reset(seed=0)
    assert first.obs == EchoObservation(echoed_message="", message_length=0)
    for step, message in enumerate(messages, 1):
        obs, reward, terminated, truncated, _ = echo.step(EchoAction(message=message))
        assert (obs.echoed_message, obs.message_length) == (message, len(message))
        assert reward == obs.reward == pytest.approx(0.1 * len(message))
        assert obs.metadata == {"step": step}
        assert (obs.done, terminated, truncated) == (False, False, False)


@pytest.mark.parametrize("action", [{"text": "a"}, {}, {"message": 3}, {"message": "a", "loud": True}, "a", None])
def test_an_invalid_action_changes_nothing(action: Any):
    echo = session()
    echo.reset(seed=0, episode_id="one")
    before = echo.snapshot()
    with pytest.raises(ValidationError):
        echo.step(action)
    assert echo.state == State(episode_id="one", step_count=0)
    assert echo.snapshot() == before


def test_changing_an_observation_does_not_affect_the_environment():
    echo = session()
    echo.reset(seed=0)
    obs = echo.step({"message": "hello"}).obs
    obs.metadata["step"] = 100
    with pytest.raises(FrozenInstanceError):
        obs.reward = 100.0
    assert echo.timestep.obs.metadata == {"step": 1}
    assert Session.restore(echo.snapshot()).timestep.obs == echo.timestep.obs


def test_pickles_and_forks_continue():
    echo = session()
    echo.reset(seed=0)
    echo.step({"message": "one"})
    for twin in (pickle.loads(pickle.dumps(echo)), echo.fork(), echo.fork(seed=3), Session.restore(echo.snapshot())):
        assert twin.step({"message": "two"}).obs.metadata == {"step": 2}
    assert echo.step_count == 1


def test_text_is_parsed_as_the_message():
    echo = session()
    echo.reset(seed=0)
    assert "Nothing to hear" in echo.describe()
    assert echo.parse("hello there") == EchoAction(message="hello there")
    assert echo.parse('{"message": "hi"}') == EchoAction(message="hi")
    assert echo.parse("3") == EchoAction(message="3")
    echo.step(echo.parse("hello"))
    assert "'hello'" in echo.describe()
