"""The random walk, the baseline of every search."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float

from tropism.plume import checks
from tropism.plume.motion import Cardinal, Motion, RunTumble
from tropism.plume.strategies import steering
from tropism.plume.strategies.strategy import Strategy


class RandomWalkMemory(eqx.Module):
    heading: Float[Array, ""]
    target_heading: Float[Array, ""]


class RandomWalk(Strategy):
    """Goes straight and turns to a random heading with probability `turning` at each step.

    Accepts any observation and motion.
    """

    motion: Motion = Cardinal()
    turning: Any = 0.1

    def __check_init__(self) -> None:
        checks.require_fraction(turning=self.turning)
        if not isinstance(self.motion, RunTumble):
            steering.check_steerable(self.motion)

    def init(self, key: Any) -> RandomWalkMemory:
        heading = steering.random_heading(key)
        return RandomWalkMemory(jnp.zeros_like(heading), heading)

    def act(self, key: Any, memory: RandomWalkMemory, obs: Any) -> tuple[Any, RandomWalkMemory]:
        turn_key, heading_key = random.split(key)
        turns = random.bernoulli(turn_key, self.turning)
        if isinstance(self.motion, RunTumble):
            return turns.astype(jnp.int32), memory
        target_heading = jnp.where(turns, steering.random_heading(heading_key), memory.target_heading)
        action, heading = steering.steer(self.motion, memory.heading, target_heading)
        return action, RandomWalkMemory(heading, target_heading)
