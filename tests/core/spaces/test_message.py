"""Text and Record: spaces of strings and typed messages."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from jax import random
from tests.core.spaces.examples import Order

from tropism.core.spaces import Record, Text
from tropism.errors import ValidationError

ORDERS = Record(Order)


@pytest.mark.parametrize("seed", range(5))
def test_samples_are_contained(seed: int):
    assert ORDERS.sample(random.key(seed)) in ORDERS
    assert ORDERS.sample(seed) in ORDERS
    for text in (Text(10), Text(3, 3), Text(5, charset="ab"), Text(0)):
        assert text.sample(random.key(seed)) in text


def test_samples_depend_on_the_key():
    assert Text(20).sample(random.key(0)) == Text(20).sample(random.key(0)) != Text(20).sample(random.key(1))


@pytest.mark.parametrize("x", ["", "abcd", b"ab", 3, None, ["a"], "xy"])
def test_text_rejects(x: Any):
    space = Text(3, 1, charset="abc")
    assert space.contains(x) is False
    with pytest.raises(ValidationError):
        space.coerce(x)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("arguments", [(-1,), (1.5,), (2, 3), (2, 0, ""), (2, 0, 5), ("2",)])
def test_text_rejects_invalid_lengths(arguments: tuple[Any, ...]):
    with pytest.raises(ValidationError):
        Text(*arguments)


def test_text_from_text_is_unchanged():
    assert Text(20).from_text('"quoted"') == '"quoted"'


def test_a_plain_dict_becomes_a_record():
    assert ORDERS.coerce({"dish": "soup", "count": 2}) == Order("soup", 2)
    assert ORDERS.coerce(Order("soup", 2, note="hot")) == Order("soup", 2, note="hot")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ({"dish": "soup"}, "action"),
        ({"dish": "soup", "count": 1, "colour": "red"}, "action"),
        ({"dish": "cake", "count": 1}, "action.dish"),
        ({"dish": "soup", "count": True}, "action.count"),
        ({"dish": "soup", "count": 1.0}, "action.count"),
        ({"dish": "soup", "count": 1, "table": 4}, "action.table"),
        ({"dish": "soup", "count": 1, "note": 3}, "action.note"),
        ({"dish": "soup", "count": 1, "extras": ["salt", 1]}, "action.extras"),
        ({"dish": "soup", "count": 1, "price": float("nan")}, "action.price"),
        (["soup", 1], "action"),
        (None, "action"),
    ],
)
def test_an_invalid_record_is_rejected_by_the_name_of_its_field(data: Any, name: str):
    assert data not in ORDERS
    with pytest.raises(ValidationError) as caught:
        ORDERS.coerce(data)
    assert caught.value.name == name


@pytest.mark.parametrize("cls", [int, 3, None, Order("soup", 1)])
def test_a_record_needs_a_frozen_dataclass(cls: Any):
    with pytest.raises(ValidationError, match="frozen dataclass"):
        Record(cls)


def test_a_mutable_dataclass_is_rejected():
    @dataclass
    class Mutable:
        x: int

    with pytest.raises(ValidationError, match="frozen dataclass"):
        Record(Mutable)


def test_json_round_trip():
    order = ORDERS.sample(random.key(0))
    assert ORDERS.from_json(ORDERS.to_json(order)) == order
    assert ORDERS.from_text('{"dish": "bread", "count": 3}') == Order("bread", 3)


def test_host_values_cannot_be_stacked():
    for space in (ORDERS, Text(3)):
        with pytest.raises(ValidationError, match="no arrays to stack"):
            space.sample(random.key(0), (2,))


def test_equal_by_value():
    assert Record(Order) == ORDERS
    several: list[Any] = [Text(3), Text(3), Text(4), Text(3, 1), Text(3, 0, "a"), ORDERS, Record(Order)]
    assert len(set(several)) == 5


@dataclass(frozen=True)
class Parcel:
    label: tuple[int, str]
    corners: tuple[tuple[float, float], ...] = ()
    nothing: tuple[()] = ()
    loose: list[int] = field(default_factory=list[int])


def test_each_item_of_a_tuple_has_its_own_type():
    parcels = Record(Parcel)
    assert Parcel((1, "a"), ((0.5, 1.0), (2.0, 3.0))) in parcels
    for label in [("a", 1), (1,), (1, "a", "b"), (1, 2), ()]:
        assert Parcel(label) not in parcels  # pyright: ignore[reportArgumentType]
    assert Parcel((1, "a"), ((0.5, "b"),)) not in parcels  # pyright: ignore[reportArgumentType]
    assert Parcel((1, "a"), (), (3,)) not in parcels  # pyright: ignore[reportArgumentType]
    assert parcels.coerce({"label": [1, "a"], "nothing": []}) == Parcel((1, "a"))
    with pytest.raises(ValidationError, match=r"action\.label"):
        parcels.coerce({"label": ["a", 1]})
    assert all(parcels.sample(random.key(seed)) in parcels for seed in range(3))
