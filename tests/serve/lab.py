"""Host environments whose actions sleep, raise, or end the episode."""

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tropism.core.adapters.class_based import AgentEnvironment
from tropism.core.environment import Environment, Info, outcome
from tropism.core.host import Host
from tropism.core.params import EnvParams
from tropism.core.spaces import Box, Discrete, Space
from tropism.wire.messages import Action, Observation

STAY, SLEEP, RAISE, END, LONG_SLEEP = range(5)
SLEEPING, LONG_SLEEPING = 0.4, 2.0  # seconds
SECRET = "the password is swordfish"


@dataclass(frozen=True)
class Count:
    start: int
    steps: int = 0


class Lab(Environment):
    """Counts its steps from the seed on."""

    host: ClassVar[Host | None] = Host()

    def default_params(self) -> EnvParams:
        return EnvParams()

    def reset(self, key: Any, params: Any) -> tuple[Any, Any]:
        state = Count(key % 1000)
        return self.observation(state), state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        if action == RAISE:
            raise RuntimeError(SECRET)
        time.sleep({SLEEP: SLEEPING, LONG_SLEEP: LONG_SLEEPING}.get(int(action), 0.0))
        state = Count(state.start, state.steps + 1)
        done, info = outcome(action == END, False)
        return self.observation(state), state, 1.0, done, info

    def observation(self, state: Any) -> Any:
        return np.array([state.start, state.steps], np.float32)

    def observation_space(self, params: Any) -> Space:
        return Box(0.0, 1e6, (2,))

    def action_space(self, params: Any) -> Space:
        return Discrete(5)


class Stuck(Lab):
    """Its steps never end."""

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        while True:
            time.sleep(1)


class Unwritable(Lab):
    """Its episodes cannot be replayed."""

    host = Host(replayable=False)


class Liar(AgentEnvironment):
    """Its steps return undeclared values."""

    def reset(self) -> Observation:
        return Observation()

    def step(self, action: Action) -> Observation:
        lie: Any = {"done": False, "said": SECRET}
        return lie
