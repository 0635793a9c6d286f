"""Two small correct environments for tests: one pure, one host environment."""

from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, ArrayLike, Float

from tropism.core.environment import Environment, EnvState, Info, outcome
from tropism.core.host import Host
from tropism.core.params import EnvParams
from tropism.core.spaces import Box, Discrete, Space

EDGE = 3.0


class LineParams(EnvParams):
    stride: ArrayLike = 1.0
    noise: ArrayLike = 0.1
    max_steps: ArrayLike = 12


class LineState(EnvState):
    x: Any


class Line(Environment):
    """Move left, stay or move right along a line, with a little noise; the edges end the episode."""

    def default_params(self) -> LineParams:
        return LineParams()

    def reset(self, key: Any, params: Any) -> tuple[Any, Any]:
        state = LineState(jnp.int32(0), random.uniform(key, minval=-1.0, maxval=1.0))
        return self.observation(state), state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        x = state.x + params.stride * (action - 1) + params.noise * random.normal(key)
        state = LineState(state.time + 1, x)
        done, info = outcome(jnp.abs(x) > EDGE, state.time >= params.max_steps)
        return self.observation(state), state, -jnp.abs(x), done, info

    def observation(self, state: Any) -> Float[Array, "1"]:
        return jnp.asarray(state.x, jnp.float32)[None]

    def observation_space(self, params: Any) -> Space:
        return Box(-10.0, 10.0, (1,))

    def action_space(self, params: Any) -> Space:
        return Discrete(3)

    def render(self, state: Any, params: Any) -> Any:
        return jnp.full((4, 6, 3), 255, jnp.uint8)


@dataclass
class Walker:
    """The state of the host environment, mutated in place."""

    x: int
    time: int = 0


class HostLine(Environment):
    """The same task in plain Python, on integers."""

    host: ClassVar[Host | None] = Host()

    def default_params(self) -> LineParams:
        return LineParams()

    def reset(self, key: Any, params: Any) -> tuple[Any, Any]:
        state = Walker(Random(key).randrange(-1, 2))
        return self.observation(state), state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        state.x += int(action) - 1 + (Random(key).random() < 0.1)
        state.time += 1
        done, info = outcome(abs(state.x) > EDGE, state.time >= params.max_steps)
        return self.observation(state), state, -float(abs(state.x)), done, info

    def observation(self, state: Any) -> Any:
        return np.array([state.x], np.float32)

    def observation_space(self, params: Any) -> Space:
        return Box(-10.0, 10.0, (1,))

    def action_space(self, params: Any) -> Space:
        return Discrete(3)
