"""Run and tumble: run straight, tumble to a random heading, less often while the odour rises (Berg & Brown 1972)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float

from tropism.plume import checks
from tropism.plume.motion import Motion, RunTumble
from tropism.plume.strategies import steering
from tropism.plume.strategies.strategy import SmellMemory, Strategy


class RunAndTumble(Strategy):
    """Tumbles with probability `rising` while the concentration rises, else with probability `otherwise`.

    Expects a vector with the concentration at index `smell`; supports every motion. With a motion that can be
    steered, a tumble is a turn to a random heading.
    """

    motion: Motion = RunTumble()
    smell: int = eqx.field(static=True, default=0)
    rising: Any = 0.02
    otherwise: Any = 0.5

    def __check_init__(self) -> None:
        checks.require_fraction(rising=self.rising, otherwise=self.otherwise)
        if not isinstance(self.motion, RunTumble):
            steering.check_steerable(self.motion)

    def init(self, key: Any) -> SmellMemory:
        return SmellMemory.start(key)

    def act(self, key: Any, memory: SmellMemory, obs: Float[Array, " n"]) -> tuple[Any, SmellMemory]:
        tumble_key, heading_key = random.split(key)
        smell = obs[self.smell].astype(memory.smell.dtype)
        tumbles = random.bernoulli(tumble_key, jnp.where(smell > memory.smell, self.rising, self.otherwise))
        if isinstance(self.motion, RunTumble):
            return tumbles.astype(jnp.int32), SmellMemory(memory.heading, memory.target_heading, smell)
        target_heading = jnp.where(tumbles, steering.random_heading(heading_key), memory.target_heading)
        action, heading = steering.steer(self.motion, memory.heading, target_heading)
        return action, SmellMemory(heading, target_heading, smell)
