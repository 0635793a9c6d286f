"""Running episodes with any policy, in a local session or on a server."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from tropism.client import Client, StepResult
from tropism.core.episode import Timestep
from tropism.core.session.session import Session
from tropism.core.spaces import Space
from tropism.errors import ValidationError


class StepOutcome(NamedTuple):
    """The result of a reset or a step."""

    obs: Any
    reward: float
    done: bool
    found: bool
    xy: tuple[float, float] | None  # agent position in a search
    error: str | None = None  # why the last action was rejected; the state is then unchanged


@runtime_checkable
class EpisodeRunner(Protocol):
    """Runs episodes of one environment, which is pure or not."""

    pure: bool

    def reset(self, seed: int) -> StepOutcome: ...

    def step(self, action: Any) -> StepOutcome: ...

    def step_text(self, text: str) -> StepOutcome:
        """Take the action in a text; one that is rejected is reported in the outcome."""
        ...

    def text(self) -> str:
        """The last observation as text."""
        ...


class LocalRunner:
    """Runs episodes in a session of this process."""

    def __init__(self, session: Session):
        self._session = session
        self.pure = session.env.pure

    def reset(self, seed: int) -> StepOutcome:
        return self._outcome(self._session.reset(seed=seed))

    def step(self, action: Any) -> StepOutcome:
        return self._outcome(self._session.step(action))

    def step_text(self, text: str) -> StepOutcome:
        try:
            return self.step(self._session.parse(text))
        except ValidationError as error:
            return self._outcome(self._session.timestep)._replace(error=str(error))

    def text(self) -> str:
        return self._session.describe()

    def _outcome(self, timestep: Timestep) -> StepOutcome:
        done = timestep.terminated or timestep.truncated
        return StepOutcome(timestep.obs, timestep.reward, done, *_search_state(timestep.info))


class RemoteRunner:
    """Runs episodes in a session on a server.

    With the observation space, bare observations get the same dtype and shape as in a local session.
    """

    def __init__(self, client: Client, space: Space | None = None, pure: bool = True):
        self._client = client
        self._space = space
        self._text = ""
        self.pure = pure

    def reset(self, seed: int) -> StepOutcome:
        return self._outcome(self._client.reset(seed=seed))

    def step(self, action: Any) -> StepOutcome:
        return self._outcome(self._client.step(action))

    def step_text(self, text: str) -> StepOutcome:
        return self.step(text)  # the server parses it

    def text(self) -> str:
        return self._text

    def _outcome(self, result: StepResult) -> StepOutcome:
        obs = result.observation
        if isinstance(obs, dict) and "value" in obs:
            obs = (
                np.asarray(obs["value"]) if self._space is None else self._space.from_json(obs["value"], "observation")
            )
        self._text = result.text
        place = _search_state(result.metadata or {})
        return StepOutcome(obs, result.reward or 0.0, result.done, *place, result.error)


def _search_state(info: dict[str, Any]) -> tuple[bool, tuple[float, float] | None]:
    if "agent_xy" not in info:
        return False, None
    x, y = info["agent_xy"]
    return bool(info["goal_reached"]), (float(x), float(y))
