"""Messages are frozen, copy their metadata, and are found by the id of their environment."""

import sys
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass
from typing import Any

import pytest

from tropism.wire.messages import Observation, State, observation_type
from tropism.wire.messages.chat import ChatAction
from tropism.wire.messages.echo import EchoAction, EchoObservation


def message_classes() -> set[type]:
    observation_type("")  # imports all modules
    modules = [module for name, module in sys.modules.items() if name.startswith("tropism.wire.messages")]
    values = [value for module in modules for value in vars(module).values()]
    return {value for value in values if isinstance(value, type) and is_dataclass(value)}


def test_messages_are_frozen_and_keyword_only_except_a_state_that_its_environment_counts():
    classes = message_classes()
    assert len(classes) >= 10
    for cls in classes:
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


def test_observation_types_are_found_by_id():
    assert observation_type("Echo-v0") is EchoObservation
    assert observation_type("CartPole-v1") is None

    @dataclass(frozen=True, kw_only=True)
    class MazeObservation(Observation, environment="Maze-v0"):
        exits: int

    assert observation_type("Maze-v0") is MazeObservation
