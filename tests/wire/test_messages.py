"""Messages are frozen and copy their metadata."""

from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import pytest

from tropism.wire import messages
from tropism.wire.messages import ChatAction, EchoAction, EchoObservation, Observation, State

CLASSES = [value for value in vars(messages).values() if isinstance(value, type) and is_dataclass(value)]


def test_messages_are_frozen_and_keyword_only_except_a_state_that_its_environment_counts():
    assert len(CLASSES) >= 10
    for cls in CLASSES:
        assert cls.__dataclass_params__.frozen or cls is State, cls  # pyright: ignore
        assert all(field.kw_only for field in fields(cls)), cls


def test_assigning_raises():
    observation: Any = EchoObservation(echoed_message="hi", message_length=2)
    with pytest.raises(FrozenInstanceError):
        observation.reward = 1.0
    action: Any = EchoAction(message="hi")
    with pytest.raises(FrozenInstanceError):
        action.message = "ho"


def test_metadata_is_copied():
    metadata = {"step": 1}
    observation = Observation(metadata=metadata)
    metadata["step"] = 2
    assert observation.metadata == {"step": 1}
    assert Observation().metadata is not Observation().metadata


def test_defaults():
    assert (Observation().done, Observation().reward, Observation().metadata) == (False, 0.0, {})
    assert State() == State(episode_id=None, step_count=0)
    assert ChatAction(content="hi").role == "user"
