"""A table at which any policy can play, one episode after the other: a session here, or one on a server."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from tropism.client import Client, StepResult
from tropism.core.episode import Timestep
from tropism.core.session.session import Session
from tropism.core.spaces import Space


class Moment(NamedTuple):
    """What a player is told after a reset or a step."""

    obs: Any
    text: str | None
    reward: float
    done: bool
    found: bool
    xy: tuple[float, float] | None  # where the agent of a plume environment is
    error: str | None = None  # what was wrong with the last action; then nothing happened


@runtime_checkable
class Table(Protocol):
    """Where episodes are played."""

    def reset(self, seed: int) -> Moment: ...

    def step(self, action: Any) -> Moment: ...


class Here:
    """A session in this process."""

    def __init__(self, session: Session):
        self._session = session

    def reset(self, seed: int) -> Moment:
        return self._moment(self._session.reset(seed=seed))

    def step(self, action: Any) -> Moment:
        return self._moment(self._session.step(action))

    def now(self) -> Moment:
        return self._moment(self._session.timestep)

    def _moment(self, timestep: Timestep) -> Moment:
        done = timestep.terminated or timestep.truncated
        return Moment(timestep.obs, None, timestep.reward, done, *_place(timestep.info))


class There:
    """A session on a server; actions may be words. Where its space is known, a bare observation is as it is here."""

    def __init__(self, client: Client, space: Space | None = None):
        self._client = client
        self._space = space

    def reset(self, seed: int) -> Moment:
        return self._moment(self._client.reset(seed=seed))

    def step(self, action: Any) -> Moment:
        return self._moment(self._client.step(action))

    def _moment(self, result: StepResult) -> Moment:
        obs = result.observation
        if isinstance(obs, dict) and "value" in obs:
            obs = (
                np.asarray(obs["value"]) if self._space is None else self._space.from_json(obs["value"], "observation")
            )
        place = _place(result.metadata or {})
        return Moment(obs, result.text, result.reward or 0.0, result.done, *place, result.error)


def _place(info: dict[str, Any]) -> tuple[bool, tuple[float, float] | None]:
    if "agent_xy" not in info:
        return False, None
    x, y = info["agent_xy"]
    return bool(info["goal_reached"]), (float(x), float(y))


class Player(ABC):
    """Abstract: whoever plays at a table."""

    @abstractmethod
    def begin(self, seed: int) -> None:
        """An episode begins."""

    @abstractmethod
    def act(self, moment: Moment) -> Any:
        """The next action."""


class Own(Player):
    """A function of the observation, or an object that is called with it and may have a `reset(seed)`."""

    def __init__(self, function: Callable[[Any], Any]):
        self._function: Any = function() if inspect.isclass(function) else function

    def begin(self, seed: int) -> None:
        match self._function:
            case object(reset=reset) if callable(reset):
                reset(seed)
            case _:
                return

    def act(self, moment: Moment) -> Any:
        return self._function(moment.obs)
