"""defensive_copy: copies share nothing mutable."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tropism.core.session.copying import defensive_copy
from tropism.wire.messages import Observation
from tropism.wire.messages.chat import ChatMessage
from tropism.wire.messages.echo import EchoAction


@dataclass(frozen=True)
class Nest:
    array: Any
    inner: tuple[Any, ...] = ()
    derived: list[int] = field(default_factory=lambda: [1], init=False)


def test_immutable_values_are_not_copied():
    for value in (None, 3, "text", EchoAction(message="hi"), ChatMessage(role="user", content="hi")):
        assert defensive_copy(value) is value


def test_mutable_values_are_copied_at_any_depth():
    nest = Nest(np.zeros(2), ({"a": [1, 2]}, Observation(metadata={"b": {"c": 1}})))
    twin = defensive_copy(nest)
    assert type(twin) is Nest
    twin.array[0] = 1
    twin.inner[0]["a"].append(3)
    twin.inner[1].metadata["b"]["c"] = 2
    twin.derived.append(2)
    assert nest.array[0] == 0
    assert nest.inner == ({"a": [1, 2]}, Observation(metadata={"b": {"c": 1}}))
    assert nest.derived == [1]


@pytest.mark.parametrize(
    "value", [[1, [2]], {"a": (1, [2])}, ({"x": 1},), Observation(reward=1.0, metadata={"k": [1]})]
)
def test_a_copy_is_equal(value: Any):
    assert defensive_copy(value) == value


def test_a_dataclass_with_slots_is_copied():
    @dataclass(frozen=True, slots=True)
    class Slotted:
        items: list[int]

    slotted = Slotted([1])
    assert defensive_copy(slotted) == slotted
    assert defensive_copy(slotted).items is not slotted.items
