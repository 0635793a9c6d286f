"""The class for TRL's `environment_factory`, used as its trainer uses it, with a real server."""

import inspect
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest
from tests.serve.running import Running, running

from tropism.errors import MissingExtraError
from tropism.openenv import as_class
from tropism.trl import environment
from tropism.wire.schemas import python_type


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("Echo-v0", "GridWorld-v0") as started:
        yield started


def tools(env: Any) -> list[str]:
    """The names that the trainer finds: public functions of the class, except reset and get_reward."""
    found = [name for name, _ in inspect.getmembers(type(env), predicate=inspect.isfunction) if name[0] != "_"]
    return [name for name in found if name not in ("reset", "get_reward")]


def test_a_rollout_with_a_typed_tool(server: Running):
    env: Any = environment("Echo-v0", server.url)()
    assert tools(env) == ["echo_message"]
    assert list(inspect.signature(env.echo_message).parameters) == ["message"]
    assert get_type_hints(env.echo_message) == {"message": str, "return": str}
    assert "Args:\n    message:" in env.echo_message.__doc__
    assert isinstance(env.reset(prompt=[{"role": "user", "content": "Hi."}], seed=1, unknown_column=3), str)
    assert "hello" in env.echo_message(message="hello")
    assert env.echo_message("you")
    assert env.get_reward() == pytest.approx(0.8)
    env.reset(seed=1)
    assert env.get_reward() == 0.0


def test_words_as_actions_and_the_end_of_an_episode(server: Running):
    env: Any = environment("GridWorld-v0", server.url)()
    assert tools(env) == ["act"]
    env.reset(seed=1, options=None)
    with pytest.raises(ValueError, match="sideways"):
        env.act(action="sideways")
    texts = [env.act(action=word) for word in ["right"] * 4 + ["down"] * 4]
    assert texts[-1].endswith("The episode is over.")
    assert env.get_reward() == pytest.approx(1 - 0.07)
    with pytest.raises(RuntimeError, match="reset"):
        env.act(action="right")


def test_two_instances_play_two_episodes(server: Running):
    cls: Any = environment("Echo-v0", server.url)
    one, other = cls(), cls()
    one.reset(seed=1)
    other.reset(seed=1)
    one.echo_message(message="hello")
    assert (one.get_reward(), other.get_reward()) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, int),
        ({"type": "array", "items": {"type": "number"}}, list[float]),
        ({"type": ["string", "null"]}, str | None),
        ({"anyOf": [{"type": "string"}, {"type": "object"}]}, str | dict),
        ({"anyOf": [{}, {"type": "object"}]}, Any),
        ({}, Any),
    ],
)
def test_types_of_schemas(schema: dict[str, Any], kind: Any):
    assert python_type(schema) == kind


def test_a_class_of_openenv_needs_the_package(monkeypatch: pytest.MonkeyPatch):
    """With the package, benchmarks/openenv_compat.py plays and serves such a class."""
    monkeypatch.setattr("tropism.openenv.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="pip install"):
        as_class("GridWorld-v0")
