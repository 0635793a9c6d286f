"""Arrays round-trip through msgpack; invalid ones are rejected, and nothing is unpickled."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tropism.errors import ValidationError
from tropism.wire.arrays import decode_array, decode_arrays
from tropism.wire.codec import pack, unpack

DTYPES = st.sampled_from(["<f4", "<f8", "<i4", "<i8", "|u1", "|b1", "<f2"])


@given(
    array=DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0)))
)
def test_array_round_trip(array: Any):
    back = decode_arrays(unpack(pack({"x": {"y": array}})))["x"]["y"]
    np.testing.assert_array_equal(back, array)
    assert back.dtype == array.dtype
    assert back.flags.writeable


def test_list_is_accepted_as_an_array():
    assert decode_array([[1, 2], [3, 4]], "x").tolist() == [[1, 2], [3, 4]]


BAD: dict[str, Any] = {
    "nothing": None,
    "a number": 3,
    "a string": "abc",
    "words": ["a", "b"],
    "ragged": [[1], [1, 2]],
    "objects": [{}, {}],
    "no shape": {"dtype": "<f4", "data": b""},
    "one field too many": {"dtype": "<f4", "shape": [0], "data": b"", "order": "F"},
    "objects as dtype": {"dtype": "|O", "shape": [1], "data": b"12345678"},
    "records as dtype": {"dtype": "V8", "shape": [1], "data": b"12345678"},
    "dtype that is none": {"dtype": "float", "shape": [1], "data": b""},
    "dtype of a list": {"dtype": ["<f4"], "shape": [1], "data": b"1234"},
    "big-endian": {"dtype": ">f4", "shape": [1], "data": b"1234"},
    "too few bytes": {"dtype": "<f4", "shape": [2], "data": b"1234"},
    "negative shape": {"dtype": "<f4", "shape": [-1], "data": b"1234"},
    "bool shape": {"dtype": "<f4", "shape": [True], "data": b"1234"},
    "enormous shape": {"dtype": "<f4", "shape": [2**62, 2**62], "data": b""},
    "text as data": {"dtype": "<f4", "shape": [1], "data": "1234"},
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_arrays_are_rejected(name: str):
    with pytest.raises(ValidationError):
        decode_array(BAD[name], "actions")
