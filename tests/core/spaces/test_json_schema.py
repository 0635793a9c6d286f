"""The JSON Schema of every space describes its members as JSON."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.spaces.examples import EVERY, Everything, Point
from tests.core.spaces.json_schema import is_valid

from tropism.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Record, Space, Text, Tuple


@pytest.mark.parametrize("space", EVERY, ids=repr)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**31))
def test_a_sample_as_json_is_valid_and_round_trips(space: Space, seed: int):
    data = space.to_json(space.sample(np.array([0, seed], np.uint32)))
    assert is_valid(json.loads(json.dumps(space.json_schema())), json.loads(json.dumps(data)))
    assert space.to_json(space.from_json(json.loads(json.dumps(data)))) == data


@pytest.mark.parametrize(
    ("space", "schema"),
    [
        (Discrete(3, start=-1), {"type": "integer", "minimum": -1, "maximum": 1}),
        (Box(-np.inf, np.inf), {"type": "number"}),
        (Box(0.0, np.inf), {"type": "number", "minimum": 0.0}),
        (
            Box(0, 9, (2,), np.int32),
            {
                "type": "array",
                "items": {"type": "integer", "minimum": 0, "maximum": 9},
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (Text(5, 1), {"type": "string", "minLength": 1, "maxLength": 5}),
        (
            Record(Point),
            {
                "title": "Point",
                "type": "object",
                "properties": {"x": {"type": "number"}, "y": {"type": "number", "default": 0.0}},
                "required": ["x"],
                "additionalProperties": False,
            },
        ),
    ],
    ids=repr,
)
def test_the_schema_in_full(space: Space, schema: dict[str, Any]):
    assert space.json_schema() == schema


@pytest.mark.parametrize(
    ("space", "data"),
    [
        (Discrete(3), 3),
        (Discrete(3), 1.5),
        (Box(0.0, 1.0, (2,)), [0.5]),
        (Box(0.0, 1.0, (2,)), [0.5, 2.0]),
        (MultiBinary(2), [0, 2]),
        (MultiDiscrete([2, 3]), [2, 0]),
        (Dict(a=Discrete(2)), {}),
        (Dict(a=Discrete(2)), {"a": 1, "b": 1}),
        (Tuple((Discrete(2), Text(3))), [1]),
        (Tuple((Discrete(2), Text(3))), [1, "abcd"]),
        (Record(Point), {"y": 1.0}),
        (Record(Point), {"x": "1"}),
        (Record(Point), {"x": 1.0, "z": 1.0}),
    ],
)
def test_the_schema_rejects_what_the_space_rejects(space: Space, data: Any):
    assert not is_valid(space.json_schema(), data)
    with pytest.raises(ValueError, match="expected"):
        space.from_json(data)


def test_a_nested_record_is_read_from_plain_json():
    data = Record(Everything).to_json(Record(Everything).sample(3)) | {"points": [{"x": 1.0}], "pair": [1, "a"]}
    read = Record(Everything).from_json(data)
    assert read.points == (Point(1.0),)
    assert read.pair == (1, "a")
    assert isinstance(read.point, Point)
