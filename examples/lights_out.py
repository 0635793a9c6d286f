"""LightsOut: flip lamps and their neighbours until all are out."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from tropism import Discrete, Environment, EnvParams, EnvState, MultiBinary, register


class LightsOutParams(EnvParams):
    max_steps: int = 50
    lit: float = 0.5  # fraction of lamps that are on at reset


class LightsOutState(EnvState):
    lamps: Bool[Array, " n"]


@register("LightsOut-v0")
class LightsOut(Environment):
    size: int = 5  # changes a shape, so it is a constructor argument, not a param

    def default_params(self):
        return LightsOutParams()

    def observation_space(self, params):
        return MultiBinary(self.size)

    def action_space(self, params):
        return Discrete(self.size)

    def reset(self, key, params):
        lamps = jax.random.bernoulli(key, params.lit, (self.size,)).at[0].set(True)
        return lamps.astype(jnp.int8), LightsOutState(jnp.int32(0), lamps)

    def step(self, key, state, action, params):
        near = jnp.abs(jnp.arange(self.size) - action) <= 1
        state = LightsOutState(state.time + 1, state.lamps ^ near)
        terminated, truncated = ~state.lamps.any(), state.time >= params.max_steps
        info = {"terminated": terminated, "truncated": truncated}
        return state.lamps.astype(jnp.int8), state, jnp.float32(terminated), terminated | truncated, info
