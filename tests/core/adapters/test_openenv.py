"""Types that a package declares beside a class without annotations."""

from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import pytest
from tests.core.agents import Guess, Hint

from tropism import Session, State, ValidationError, adapt
from tropism.core.adapters.openenv import declared_types

A = TypeVar("A")
B = TypeVar("B")


class Base(Generic[A, B]):
    """As the base class of the openenv package: generic, and annotated with type variables."""

    def reset(self, seed: int | None = None, **options: Any) -> B:
        raise NotImplementedError

    def step(self, action: A) -> B:
        raise NotImplementedError

    state = State()


class Generically(Base[Guess, Hint]):
    def reset(self, seed=None, **options):  # pyright: ignore
        return Hint(text="?")

    def step(self, action):  # pyright: ignore
        return Hint(text=str(action))


class Served(Base[Any, Any]):
    """The types are those that its server is created with."""

    def reset(self, seed=None):  # pyright: ignore
        return Hint(text="?")

    def step(self, action):  # pyright: ignore
        return Hint(text=str(action))


class Unserved(Served):
    pass


def create_app(env: type, action: type, observation: type) -> SimpleNamespace:
    """The attributes of a FastAPI application of the openenv package that lead to its server."""
    server = SimpleNamespace(_env_factory=env, action_cls=action, observation_cls=observation)

    async def handler() -> Any:
        return server

    async def endpoint() -> Any:
        return await handler()

    return SimpleNamespace(routes=[SimpleNamespace(), SimpleNamespace(endpoint=endpoint)])


app = create_app(Served, Guess, Hint)


@pytest.mark.parametrize("kind", [Generically, Served])
def test_declared_types_are_found(kind: Any):
    assert declared_types(kind) == (Guess, Hint)
    with Session(adapt(kind)) as session:
        assert session.reset(seed=1).obs == Hint(text="?")


def test_a_class_without_declared_types_is_rejected():
    assert declared_types(Unserved) == (None, None)
    with pytest.raises(ValidationError, match=r"annotate Unserved\.step"):
        adapt(Unserved)
