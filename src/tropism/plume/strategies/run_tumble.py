"""Run and tumble: run straight, tumble to a random heading, less often while the smell rises (Berg & Brown 1972)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float

from tropism.plume import checks
from tropism.plume.motion import Motion, RunTumble
from tropism.plume.strategies import steering
from tropism.plume.strategies.strategy import Strategy


class RunAndTumbleMemory(eqx.Module):
    facing: Float[Array, ""]
    wanted: Float[Array, ""]
    smell: Float[Array, ""]  # a step ago


class RunAndTumble(Strategy):
    """Tumbles with probability `rising` while the smell rises, else with probability `otherwise`.

    Expects a vector with the concentration at index `smell`, and works for every motion; one that can be
    steered tumbles by going on at a random heading.
    """

    motion: Motion = RunTumble()
    smell: int = eqx.field(static=True, default=0)
    rising: Any = 0.02
    otherwise: Any = 0.5

    def __check_init__(self) -> None:
        checks.fraction(rising=self.rising, otherwise=self.otherwise)
        if not isinstance(self.motion, RunTumble):
            steering.check_steerable(self.motion)

    def init(self, key: Any) -> RunAndTumbleMemory:
        heading = steering.any_heading(key)
        return RunAndTumbleMemory(jnp.zeros_like(heading), heading, jnp.zeros_like(heading))

    def act(self, key: Any, memory: RunAndTumbleMemory, obs: Float[Array, " n"]) -> tuple[Any, RunAndTumbleMemory]:
        tumble_key, heading_key = random.split(key)
        smell = obs[self.smell].astype(memory.smell.dtype)
        tumbles = random.bernoulli(tumble_key, jnp.where(smell > memory.smell, self.rising, self.otherwise))
        if isinstance(self.motion, RunTumble):
            return tumbles.astype(jnp.int32), RunAndTumbleMemory(memory.facing, memory.wanted, smell)
        wanted = jnp.where(tumbles, steering.any_heading(heading_key), memory.wanted)
        action, facing = steering.steer(self.motion, memory.facing, wanted)
        return action, RunAndTumbleMemory(facing, wanted, smell)
