"""The actions of a vector on their way into the compiled step."""

from typing import Any

import jax
import numpy as np
import pytest

from tropism import ValidationError
from tropism.core.compiled.batch_actions import Inbox, batch_reader
from tropism.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.int8])
def test_what_is_filled_in_is_what_a_compiled_function_reads(dtype: Any):
    inbox = Inbox((3, 2), dtype)
    double = jax.jit(lambda x: 2 * x)
    for start in range(5):
        values = np.arange(start, start + 6).reshape(3, 2)
        assert (np.asarray(double(inbox.fill(values))) == 2 * values).all()


def test_a_copied_inbox_hands_over_the_values_themselves():
    inbox = Inbox((2,), np.int32)
    inbox.shared = False
    first = inbox.fill(np.array([1, 0]))
    inbox.fill(np.array([0, 1]))
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
def test_members_of_every_array_space_arrive_and_others_are_refused(space: Space, batch: Any, bad: Any):
    read = batch_reader(space, 2)
    arrived = np.array(read(batch))
    assert (arrived == batch).all()
    assert arrived.dtype == space.dtype
    with pytest.raises(ValidationError):
        read(bad)
    assert (np.array(read(batch)) == batch).all()


def test_a_dict_of_spaces_is_handed_over_part_by_part():
    read = batch_reader(Dict({"turn": Discrete(2), "speed": Box(0, 1)}), 2)
    arrived = read({"turn": np.array([0, 1]), "speed": np.array([0.5, 1], np.float32)})
    assert arrived["turn"].tolist() == [0, 1]
    assert arrived["speed"].tolist() == [0.5, 1]
