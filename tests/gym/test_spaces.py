"""Spaces to Gymnasium and back."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from jax import random

from tropism import Box, Dict, Discrete, Image, MultiBinary, MultiDiscrete, Record, Space, Text, Tuple, ValidationError
from tropism.gym import from_gymnasium_space, to_gymnasium_space
from tropism.gym.spaces import from_gym_value, to_gym_value

NVEC, START = np.array([[2, 5], [3, 4]]), np.array([[1, 0], [3, -4]])

PAIRS: dict[str, Any] = {
    "discrete": (Discrete(4), spaces.Discrete(4)),
    "discrete from -2": (Discrete(5, start=-2), spaces.Discrete(5, start=-2)),
    "multi discrete": (MultiDiscrete([2, 5]), spaces.MultiDiscrete([2, 5], dtype=np.int32)),
    "multi discrete from 3": (MultiDiscrete(NVEC, START), spaces.MultiDiscrete(NVEC, dtype=np.int32, start=START)),
    "multi binary": (MultiBinary(3), spaces.MultiBinary(3)),
    "multi binary matrix": (MultiBinary((2, 3)), spaces.MultiBinary((2, 3))),
    "box": (Box(-1, [1, 2], (2,)), spaces.Box(np.array([-1, -1]), np.array([1, 2]), (2,), np.float32)),
    "unbounded box": (Box(-np.inf, np.inf, (2, 3)), spaces.Box(-np.inf, np.inf, (2, 3), np.float32)),
    "scalar box": (Box(0, 1), spaces.Box(0, 1, (), np.float32)),
    "double box": (Box(0, 1, (2,), np.float64), spaces.Box(0, 1, (2,), np.float64)),
    "integer box": (Box(-3, 3, (2,), np.int8), spaces.Box(-3, 3, (2,), np.int8)),
    "picture box": (Box(0, 255, (8, 9, 3), np.uint8), spaces.Box(0, 255, (8, 9, 3), np.uint8)),
    "text": (Text(5, 1, "abc"), spaces.Text(5, min_length=1, charset="abc")),
    "dict": (Dict(b=Discrete(2), a=Box(0, 1)), spaces.Dict(a=spaces.Box(0, 1, ()), b=spaces.Discrete(2))),
    "tuple": (Tuple([Discrete(2), MultiBinary(2)]), spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(2)])),
}


@dataclass(frozen=True)
class Message:
    text: str
    count: int
    weight: float = 0.5
    urgent: bool = False
    role: Literal["user", "system"] = "user"
    direction: Annotated[int, Discrete(4)] = 0
    extra: dict[str, Any] | None = None


@pytest.mark.parametrize("name", PAIRS)
def test_spaces_convert_to_gymnasium_and_back(name: str):
    ours, theirs = PAIRS[name]
    assert to_gymnasium_space(ours) == theirs
    assert ours.to_gymnasium() == theirs
    assert from_gymnasium_space(theirs) == ours
    assert to_gymnasium_space(ours).dtype == theirs.dtype


@pytest.mark.parametrize("name", PAIRS)
def test_each_space_contains_the_samples_of_the_other(name: str):
    ours, theirs = PAIRS[name]
    theirs = to_gymnasium_space(ours)
    theirs.seed(0)
    for number in range(20):
        assert theirs.sample() in ours
        mine = ours.coerce(ours.sample(random.key(number)))
        assert theirs.contains(mine), mine


def test_a_picture_stays_a_box():
    assert to_gymnasium_space(Image(8, 9)) == spaces.Box(0, 255, (8, 9, 3), np.uint8)


def test_a_text_of_any_characters_has_short_samples():
    space = to_gymnasium_space(Text(1000))
    assert isinstance(space, spaces.Text)
    for text in ("", "Grüße, 世界!\n", "x" * 1000):
        assert space.contains(text)
    for wrong in ("x" * 1001, 5, None, b"x"):
        assert not space.contains(wrong)
    space.seed(0)
    assert all(len(space.sample()) <= 20 and space.sample() in Text(1000) for _ in range(20))
    assert from_gymnasium_space(space) == Text(1000)
    assert space != spaces.Text(1000, min_length=0)
    assert space == to_gymnasium_space(Text(1000)) != to_gymnasium_space(Text(999))


def test_a_record_becomes_the_dict_of_its_fields():
    space = to_gymnasium_space(Record(Message))
    assert isinstance(space, spaces.Dict)
    assert set(space.spaces) == {"text", "count", "weight", "urgent", "role", "direction", "extra"}
    assert space["direction"] == spaces.Discrete(4)
    message = Message("héllo", 3, extra={"a": [1]})
    convert = to_gym_value(Record(Message))
    assert convert is not None
    shown = convert(message)
    assert space.contains(shown)
    shown["extra"]["a"].append(2)
    assert message.extra == {"a": [1]}


def test_an_action_for_a_record_may_be_a_dict_of_gymnasium_values():
    space = Record(Message)
    convert = from_gym_value(space)
    assert convert is not None
    action = {"text": "x", "count": np.array(3), "weight": np.array(0.25), "direction": np.int64(2)}
    assert space.coerce(convert(action)) == Message("x", 3, 0.25, direction=2)
    assert convert(5) == 5


def test_only_spaces_with_records_inside_convert_values():
    assert to_gym_value(Dict(a=Discrete(2), b=Tuple([Text(3)]))) is None
    nested = Dict(a=Discrete(2), b=Tuple([Discrete(2), Record(Message)]))
    convert = to_gym_value(nested)
    assert convert is not None
    shown = convert({"a": 1, "b": (0, Message("x", 1))})
    assert shown["a"] == 1
    assert shown["b"][0] == 0
    assert shown["b"][1]["text"] == "x"
    assert to_gymnasium_space(nested).contains(shown)


@pytest.mark.parametrize("space", [spaces.Sequence(spaces.Discrete(2)), spaces.Graph(spaces.Discrete(2), None)])
def test_a_space_without_a_counterpart_is_rejected(space: gymnasium.Space[Any]):
    with pytest.raises(ValidationError):
        from_gymnasium_space(space)


class Unknown(Space):
    @property
    def shape(self) -> None: ...
    @property
    def dtype(self) -> None: ...
    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> Any: ...
    def contains(self, x: Any) -> Any: ...
    def coerce(self, x: Any, name: str = "action") -> Any: ...
    def json_schema(self) -> dict[str, Any]: ...
    def identity(self) -> tuple[Any, ...]:
        return ()


def test_an_unknown_space_is_rejected():
    with pytest.raises(ValidationError, match="one of Tropism's spaces"):
        to_gymnasium_space(Unknown())


def test_a_sampled_record_with_a_bool_is_converted():
    @dataclass(frozen=True)
    class Switch:
        on: bool
        level: int = 0

    space = Record(Switch)
    twin, into = to_gymnasium_space(space), from_gym_value(space)
    assert into is not None
    twin.seed(0)
    members = [space.coerce(into(twin.sample())) for _ in range(20)]
    assert {member.on for member in members} == {True, False}
    assert all(member in space for member in members)
    with pytest.raises(ValidationError, match="on"):
        space.coerce(into({"on": 1.0}))
