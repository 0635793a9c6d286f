"""Messages that would take long to decode are refused; large ordinary ones are not. Times: `benchmarks.hostile`."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tropism.errors import ServerError
from tropism.wire.codec import LARGE, decode, pack, unpack
from tropism.wire.limits import MAX_CONTAINERS, MAX_DEPTH, MAX_EXTREME_FLOATS, MAX_UNPACKED_VALUES

MEGABYTE = 2**20
PADDING = " " * LARGE  # makes a message large


def refusal(raw: bytes | str) -> str:
    with pytest.raises(ServerError) as raised:
        decode(raw)
    assert raised.value.code == "INVALID_JSON"
    return raised.value.message


@given(depth=st.integers(1, 400), kind=st.sampled_from(["[]", "{}"]))
def test_nesting_is_limited(depth: int, kind: str):
    opening = "[" if kind == "[]" else '{"a":'
    text = opening * depth + "1" + kind[1] * depth
    if depth <= MAX_DEPTH:
        decode(text)
    else:
        assert "levels" in refusal(text)


@given(texts=st.lists(st.text('[]{}"\\a,:', min_size=20), min_size=4), depth=st.integers(1, 2 * MAX_DEPTH))
def test_brackets_inside_strings_do_not_count(texts: list[str], depth: int):
    value: Any = {text: text for text in texts}
    for _ in range(depth - 2):
        value = [texts[0], value, texts[1]]
    text = json.dumps([value, "[" * 100])
    if depth <= MAX_DEPTH:
        assert decode(text) == json.loads(text)
    else:
        assert "levels" in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * MEGABYTE,
        "[" * 70 + '"' + '\\"' * (MEGABYTE // 2),
        "[" * 70 + '"' + "\\" * MEGABYTE,
        ("[" * 70 + "]" * 70 + ",") * 5_000,
        '[{"' * (MEGABYTE // 3),
    ],
    ids=["open", "escaped quotes", "backslashes", "many", "mixed"],
)
def test_malformed_megabyte_is_refused(text: str):
    refusal(text)


def test_number_of_containers_is_limited():
    for item in ("[]", "{}", '{"a":1}'):
        text = "[" + ",".join([item] * (MAX_CONTAINERS - 1)) + "]"
        assert len(decode(text)) == MAX_CONTAINERS - 1
        assert "arrays and objects" in refusal(text[:-1] + ",[]]")
    image = [[[200, 100, 50]] * 270] * 270
    assert decode(json.dumps(image)) == image
    assert decode(json.dumps(["[{" * MAX_CONTAINERS]))


def test_number_of_extreme_floats_is_limited():
    for literal in ("1.5e300", "1e-300", "1.5E-324", "-1E+100"):
        text = "[" + ",".join([literal] * MAX_EXTREME_FLOATS) + "]"
        assert decode(text) == [float(literal)] * MAX_EXTREME_FLOATS
        assert "numbers" in refusal(text[:-1] + f",{literal}]")


@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_floats_of_a_large_message_are_exact(values: list[float]):
    assert decode(json.dumps([values, PADDING]))[0] == values


def test_large_arrays_of_numbers_are_read():
    for values in ([0.0] * 200_000, [1e-5] * 150_000, [1e23] * 150_000, list(range(150_000))):
        assert decode(json.dumps(values)) == values


@pytest.mark.parametrize("literal", ["1e999", "-1e999", "1" + "0" * 400 + ".5"])
def test_number_out_of_range_is_refused(literal: str):
    for text in (f"[{literal}]", f'[{literal}, "{PADDING}"]'):
        with pytest.raises(ServerError, match="Number out of range") as raised:
            decode(text)
        assert raised.value.code == "VALIDATION_ERROR"


def test_lone_surrogate_in_a_large_message_is_reported():
    for half in ("\\ud800", "\\udfff", "\\ud83d\\ud83d\\ude00"):
        assert "lone surrogate" in refusal(f'["{PADDING}{half}"]')
    assert decode(f'["{PADDING}\\ud83d\\ude00\\\\ud800"]') == [PADDING + "😀\\ud800"]
    assert "lone surrogate" not in refusal(f'["{PADDING}\\ud83d\\ude00\\\\ud800"')


def test_number_of_packed_containers_is_limited():
    for byte in (0x80, 0x90):
        with pytest.raises(ServerError, match="dtype, shape and data"):
            unpack(b"\xdd" + MEGABYTE.to_bytes(4, "big") + bytes([byte]) * MEGABYTE)
    array = np.full(MEGABYTE, 0x90, np.uint8)
    assert unpack(pack({"actions": array}))["actions"]["data"] == array.tobytes()


VALUES = (
    [None, True, 1, -1, 200, 2**15, 2**31, 2**63, -100, -(2**14), -(2**30), -(2**60), 1.5]
    + [b"b", bytes(300), bytes(70_000), "s", "t" * 40, "u" * 300, "v" * 70_000]
    + [msgspec.msgpack.Ext(1, bytes(size)) for size in (1, 2, 4, 8, 16, 3, 300, 70_000)]
    + [[1], [1] * 20, [1] * 70_000, {"a": 1}, {str(key): 1 for key in range(20)}]
)


def size(value: Any) -> int:
    """The number of values in a message."""
    if isinstance(value, dict):
        return 1 + sum(map(size, value)) + sum(map(size, value.values()))
    return 1 + sum(map(size, value)) if isinstance(value, list) else 1


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_packed_values_are_counted(value: Any):
    payload = bytes([0x90]) * (MAX_CONTAINERS + 1)  # might begin too many containers
    others = MAX_UNPACKED_VALUES - 2 - size(value)
    if others >= 0:
        unpack(pack([value, payload, *[None] * others]))
    with pytest.raises(ServerError, match="values"):
        unpack(pack([value, payload, *[None] * (others + 1)]))
