"""Actions of a vector: checked, cast, and written where the compiled step reads them."""

from typing import Any

import jax
import numpy as np
import pytest

from tropism import ValidationError
from tropism.core.compiled.batch_actions import ActionBuffer, batch_reader
from tropism.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.int8])
def test_a_compiled_function_reads_the_filled_values(dtype: Any):
    buffer = ActionBuffer((3, 2), dtype)
    double = jax.jit(lambda x: 2 * x)
    for start in range(5):
        values = np.arange(start, start + 6).reshape(3, 2)
        assert (np.asarray(double(buffer.fill(values))) == 2 * values).all()


def test_a_copied_buffer_returns_the_values():
    buffer = ActionBuffer((2,), np.int32)
    buffer.shared = False
    first = buffer.fill(np.array([1, 0]))
    buffer.fill(np.array([0, 1]))
    assert first.tolist() == [1, 0]
    assert first.dtype == np.int32


@pytest.mark.parametrize(
    ("space", "batch", "bad"),
    [
        (Discrete(3, start=5), np.array([5, 7]), np.array([5, 4])),
        (Discrete(3), np.array([0, 2]), np.array([-1, 2])),
        (MultiDiscrete([2, 3]), np.array([[1, 2], [0, 0]]), np.array([[2, 0], [0, 0]])),
        (MultiBinary(2), np.array([[1, 0], [0, 0]]), np.array([[2, 0], [0, 0]])),
        (Box(-1, 1, (2,)), np.array([[0.5, 1], [-1, 0]]), np.array([[2.0, 0], [0, 0]])),
    ],
    ids=str,
)
def test_members_of_every_array_space_are_accepted_and_others_rejected(space: Space, batch: Any, bad: Any):
    read = batch_reader(space, 2)
    arrived = np.array(read(batch))
    assert (arrived == batch).all()
    assert arrived.dtype == space.dtype
    with pytest.raises(ValidationError):
        read(bad)
    assert (np.array(read(batch)) == batch).all()


def test_a_dict_of_spaces_is_coerced_member_by_member():
    read = batch_reader(Dict({"turn": Discrete(2), "speed": Box(0, 1)}), 2)
    arrived = read({"turn": np.array([0, 1]), "speed": np.array([0.5, 1], np.float32)})
    assert arrived["turn"].tolist() == [0, 1]
    assert arrived["speed"].tolist() == [0.5, 1]
