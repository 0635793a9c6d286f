"""Running episodes with any policy, in a local session or on a server."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from tropism.client import Client, StepResult
from tropism.core.episode import Timestep
from tropism.core.session.session import Session
from tropism.core.spaces import Space


class StepOutcome(NamedTuple):
    """The result of a reset or a step, as policies see it."""

    obs: Any
    text: str | None
    reward: float
    done: bool
    found: bool
    xy: tuple[float, float] | None  # agent position in a plume environment
    error: str | None = None  # why the last action was rejected; the state is then unchanged


@runtime_checkable
class EpisodeRunner(Protocol):
    """Runs episodes of one environment."""

    def reset(self, seed: int) -> StepOutcome: ...

    def step(self, action: Any) -> StepOutcome: ...


class LocalRunner:
    """Runs episodes in a session of this process."""

    def __init__(self, session: Session):
        self._session = session

    def reset(self, seed: int) -> StepOutcome:
        return self._outcome(self._session.reset(seed=seed))

    def step(self, action: Any) -> StepOutcome:
        return self._outcome(self._session.step(action))

    def current(self) -> StepOutcome:
        return self._outcome(self._session.timestep)

    def _outcome(self, timestep: Timestep) -> StepOutcome:
        done = timestep.terminated or timestep.truncated
        return StepOutcome(timestep.obs, None, timestep.reward, done, *_search_state(timestep.info))


class RemoteRunner:
    """Runs episodes in a session on a server; actions may be text.

    With the observation space, bare observations get the same dtype and shape as in a local session.
    """

    def __init__(self, client: Client, space: Space | None = None):
        self._client = client
        self._space = space

    def reset(self, seed: int) -> StepOutcome:
        return self._outcome(self._client.reset(seed=seed))

    def step(self, action: Any) -> StepOutcome:
        return self._outcome(self._client.step(action))

    def _outcome(self, result: StepResult) -> StepOutcome:
        obs = result.observation
        if isinstance(obs, dict) and "value" in obs:
            obs = (
                np.asarray(obs["value"]) if self._space is None else self._space.from_json(obs["value"], "observation")
            )
        place = _search_state(result.metadata or {})
        return StepOutcome(obs, result.text, result.reward or 0.0, result.done, *place, result.error)


def _search_state(info: dict[str, Any]) -> tuple[bool, tuple[float, float] | None]:
    if "agent_xy" not in info:
        return False, None
    x, y = info["agent_xy"]
    return bool(info["goal_reached"]), (float(x), float(y))


class HostPolicy(ABC):
    """Abstract: a policy that runs in Python, one step at a time."""

    @abstractmethod
    def begin(self, seed: int) -> None:
        """Called at the start of each episode."""

    @abstractmethod
    def act(self, outcome: StepOutcome) -> Any:
        """The next action."""


class HostFunctionPolicy(HostPolicy):
    """A function of the observation, or a callable object, optionally with a method `reset(seed)`."""

    def __init__(self, function: Callable[[Any], Any]):
        self._function: Any = function() if inspect.isclass(function) else function

    def begin(self, seed: int) -> None:
        match self._function:
            case object(reset=reset) if callable(reset):
                reset(seed)
            case _:
                return

    def act(self, outcome: StepOutcome) -> Any:
        return self._function(outcome.obs)
