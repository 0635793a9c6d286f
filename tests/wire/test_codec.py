"""Untrusted JSON: decoded like `json`, or rejected with a message."""

import json
import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tropism.errors import ServerError
from tropism.wire.codec import LARGE, decode, decode_frame, encode, pack, unpack

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(value=JSON)
def test_codec_agrees_with_json(value: Any):
    assert decode(json.dumps(value)) == value
    assert decode(json.dumps(value).encode()) == value
    assert json.loads(encode(value)) == value
    assert decode(json.dumps([value, " " * LARGE]))[0] == value


@given(raw=st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_invalid_json_is_rejected_with_a_message(raw: bytes):
    for read in (decode, decode_frame, unpack):
        with suppress(ServerError):  # and nothing else
            read(raw)


@pytest.mark.parametrize("half", ["\\ud800", "\\udfff", "\\ud83d and \\ude00", "\\ud83d\\ud83d\\ude00"])
def test_lone_surrogate_is_reported(half: str):
    for text in (f'{{"type": "{half}"}}', f'{{"type": "step", "data": {{"message": ["{half}"]}}}}', f'{{"{half}": 1}}'):
        for read in (decode, decode_frame):
            for raw in (text, text.encode()):
                with pytest.raises(ServerError, match="lone surrogate") as raised:
                    read(raw)
                assert raised.value.code == "INVALID_JSON"
    assert decode('"\\ud83d\\ude00"') == "😀"
    for text in (f'["{half}"', '{"a": "\\ud8', "[NaN]"):
        with pytest.raises(ServerError) as raised:
            decode(text)
        assert "lone surrogate" not in raised.value.message


def test_arrays_become_lists_and_nan_becomes_null():
    value = {"a": np.array([1.5, math.nan], np.float32), "b": np.int64(3), "c": math.inf, "d": np.bool_(True)}
    assert json.loads(encode(value)) == {"a": [1.5, None], "b": 3, "c": None, "d": True}


def test_array_msgpack_round_trip():
    packed = unpack(pack({"x": np.arange(6, dtype=np.int16).reshape(2, 3)}))
    assert packed == {"x": {"dtype": "<i2", "shape": [2, 3], "data": np.arange(6, dtype=np.int16).tobytes()}}


def test_frames_have_known_fields_only():
    frame = decode_frame('{"type": "step", "data": {"value": 1}, "id": null, "request_id": "a"}')
    assert (frame.type, frame.data, frame.id, frame.request_id) == ("step", {"value": 1}, None, "a")
    for text in ('{"type": "step", "colour": 1}', '{"data": {}}', '{"type": "step", "data": 3}', "[]"):
        with pytest.raises(ServerError) as raised:
            decode_frame(text)
        assert raised.value.code == "VALIDATION_ERROR"
