"""Typed messages of agent environments, as frozen dataclasses, those of an environment in a file; imports no JAX."""

from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Action:
    """Base class of actions; subclasses add fields."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Base class of observations; subclasses add fields.

    `metadata` is copied on construction, and a session returns copies of its observations: changing one has no effect
    on the session. Clients decode the observations of the id `environment` into a subclass that names it.
    """

    done: bool = False
    reward: float | None = 0.0  # None counts as 0
    metadata: dict[str, Any] = field(default_factory=dict)

    def __init_subclass__(cls, environment: str | None = None, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if environment is not None:
            _types[environment] = cls

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", dict(self.metadata))


@dataclass(kw_only=True)
class State:
    """The episode of a session and the number of steps taken in it; an environment may count in its own."""

    episode_id: str | None = None
    step_count: int = 0


_types: dict[str, type[Observation]] = {}


def observation_type(environment: str) -> type[Observation] | None:
    """The type of the observations of this environment, if it is known without a server."""
    _import_all()
    return _types.get(environment)


@cache
def _import_all() -> None:
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
