"""Model: classes that validate themselves, such as pydantic models."""

from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.agents import Move

from tropism.core.spaces import Model
from tropism.errors import ValidationError
from tropism.gym.spaces import from_gym_value, to_gym_value

pydantic = pytest.importorskip("pydantic")


class Part(pydantic.BaseModel):
    weight: float = pydantic.Field(gt=0, le=2)


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    name: str = pydantic.Field(min_length=1, max_length=8)
    size: Literal["small", "large"]
    kind: Literal["only"]
    count: int = pydantic.Field(ge=1, le=5)
    flag: bool
    part: Part
    pair: tuple[int, str]
    many: list[int] = pydantic.Field(min_length=2)
    maybe: int | None
    extra: dict[str, Any] = pydantic.Field(default_factory=dict)


ORDERS = Model(Order)
GOOD = ORDERS.to_json(ORDERS.sample(0))


@settings(max_examples=30)
@given(st.integers(0, 2**40))
def test_samples_are_contained_and_round_trip_through_json(seed: int):
    for space in (ORDERS, Model(Move)):
        sample = space.sample(seed)
        assert sample in space
        assert space.from_json(space.to_json(sample)) == sample


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"count": 9}, "action.count"),
        ({"part": {"weight": -1}}, "action.part.weight"),
        ({"size": "huge"}, "action.size"),
        ({"colour": "red"}, "action.colour"),
    ],
)
def test_what_the_class_rejects_is_rejected_by_the_name_of_its_field(change: dict[str, Any], name: str):
    with pytest.raises(ValidationError) as caught:
        ORDERS.coerce({**GOOD, **change})
    assert caught.value.name == name


@pytest.mark.parametrize("x", [None, 3, [1], "order", {}, Move(to=1)])
def test_other_messages_are_rejected(x: Any):
    assert x not in ORDERS
    with pytest.raises(ValidationError):
        ORDERS.coerce(x)


@pytest.mark.parametrize("cls", [int, 3, None, Move(to=1)])
def test_a_model_needs_a_class_with_the_methods_of_pydantic(cls: Any):
    with pytest.raises(ValidationError, match="model_validate"):
        Model(cls)


def test_equal_by_value_and_not_stackable():
    spaces: list[Any] = [Model(Order), Model(Order), Model(Move)]
    assert len(set(spaces)) == 2
    with pytest.raises(ValidationError, match="no arrays to stack"):
        ORDERS.sample(0, (2,))
    assert repr(ORDERS) == "Model(Order)"


def test_the_gymnasium_space_contains_observations_and_samples_actions():
    class Small(pydantic.BaseModel):
        name: str = pydantic.Field(min_length=1, max_length=8)
        size: Literal["small", "large"]
        count: int = pydantic.Field(ge=1, le=5)
        flag: bool
        maybe: int | None = None

    space = Model(Small)
    twin, out, back = space.to_gymnasium(), to_gym_value(space), from_gym_value(space)
    assert out is not None
    assert back is not None
    for seed in range(20):
        assert twin.contains(out(space.sample(seed)))
        assert isinstance(space.coerce(back(twin.sample())), Small)
