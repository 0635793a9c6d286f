"""Environments that a server loads: arguments and params of each."""

from typing import Any

import pytest

from tropism.errors import ValidationError
from tropism.serve.server import load_environments


def test_arguments_and_params_are_given_by_environment():
    values: dict[str, Any] = {"GridWorld-v0:size": 7, "Chat-v0:max_turns": 3}
    loaded = load_environments(["GridWorld-v0", "Chat-v0", "CartPole-v1"], {"CartPole-v1:gravity": 1.6}, **values)
    assert (loaded["GridWorld-v0"].env.size, loaded["Chat-v0"].env.max_turns) == (7, 3)  # pyright: ignore
    assert float(loaded["CartPole-v1"].params.gravity) == pytest.approx(1.6)


def test_a_single_environment_needs_no_id():
    for name in ("size", "GridWorld-v0:size"):
        values: dict[str, Any] = {name: 7}
        assert load_environments(["GridWorld-v0"], **values)["GridWorld-v0"].env.size == 7  # pyright: ignore


@pytest.mark.parametrize("name", ["size", "Echo-v1:size", "GridWorld-v0:", ":size"])
def test_a_name_without_a_served_environment_is_refused(name: str):
    values: dict[str, Any] = {name: 7}
    with pytest.raises(ValidationError, match="ID is one of GridWorld-v0, Echo-v0"):
        load_environments(["GridWorld-v0", "Echo-v0"], **values)


def test_an_unknown_argument_of_one_environment_is_refused():
    values: dict[str, Any] = {"GridWorld-v0:speed": 7}
    with pytest.raises(ValidationError, match="speed"):
        load_environments(["GridWorld-v0", "Echo-v0"], **values)
