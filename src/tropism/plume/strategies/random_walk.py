"""The random walk, against which every search is measured."""

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
    facing: Float[Array, ""]
    wanted: Float[Array, ""]


class RandomWalk(Strategy):
    """Goes straight on, and takes a random heading with probability `turning` at each step.

    Expects any observation, and works for every motion.
    """

    motion: Motion = Cardinal()
    turning: Any = 0.1

    def __check_init__(self) -> None:
        checks.fraction(turning=self.turning)
        if not isinstance(self.motion, RunTumble):
            steering.check_steerable(self.motion)

    def init(self, key: Any) -> RandomWalkMemory:
        heading = steering.any_heading(key)
        return RandomWalkMemory(jnp.zeros_like(heading), heading)

    def act(self, key: Any, memory: RandomWalkMemory, obs: Any) -> tuple[Any, RandomWalkMemory]:
        turn_key, heading_key = random.split(key)
        turns = random.bernoulli(turn_key, self.turning)
        if isinstance(self.motion, RunTumble):
            return turns.astype(jnp.int32), memory
        wanted = jnp.where(turns, steering.any_heading(heading_key), memory.wanted)
        action, facing = steering.steer(self.motion, memory.facing, wanted)
        return action, RandomWalkMemory(facing, wanted)
