"""Test environments with image observations."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from tropism.core.adapters.language import Language
from tropism.core.environment import Environment, EnvState, Info, outcome
from tropism.core.host import Host
from tropism.core.params import EnvParams
from tropism.core.spaces import Box, Dict, Discrete, Image, Space

HEIGHT, WIDTH = 4, 6


class Camera(Environment):
    """A lit column of a grey image moves right at each step, beside a number; does not render."""

    click: tuple[tuple[Any, ...], ...] = eqx.field(static=True, default=())

    def default_params(self) -> EnvParams:
        return EnvParams()

    def reset(self, key: Any, params: Any) -> tuple[Any, EnvState]:
        state = EnvState(jnp.zeros((), jnp.int32))
        return self.observation(state), state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        state = EnvState(state.time + 1)
        done, info = outcome(state.time >= 20, jnp.zeros((), bool))
        return self.observation(state), state, jnp.ones(()), done, info

    def observation(self, state: Any) -> dict[str, Any]:
        lit = jnp.arange(WIDTH) == state.time % WIDTH
        frame = jnp.where(lit[None, :, None], jnp.arange(100, 100 + HEIGHT)[:, None, None], 0).astype(jnp.uint8)
        return {"frame": frame, "time": state.time.astype(jnp.float32)}

    def observation_space(self, params: Any) -> Space:
        return Dict(frame=Image(HEIGHT, WIDTH, 1), time=Box(0.0, 100.0, ()))

    def action_space(self, params: Any) -> Space:
        return Discrete(4)

    @property
    def language(self) -> Language:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Language(clicks=self.click)


class HostCamera(Environment):
    """Colours that depend on the step; a host environment whose episodes cannot be replayed."""

    host = Host(replayable=False)

    def default_params(self) -> EnvParams:
        return EnvParams()

    def reset(self, key: Any, params: Any) -> tuple[Any, int]:
        return self.observation(0), 0

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        return self.observation(state + 1), state + 1, 1.0, *outcome(state >= 20, False)

    def observation(self, time: int) -> Any:
        return np.broadcast_to(np.array([10, 20, 30 + time], np.uint8), (HEIGHT, WIDTH, 3)).copy()

    def observation_space(self, params: Any) -> Space:
        return Image(HEIGHT, WIDTH, 3)

    def action_space(self, params: Any) -> Space:
        return Discrete(2)
