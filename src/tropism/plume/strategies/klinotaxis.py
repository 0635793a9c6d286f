"""Klinotaxis: compare the smell with a moment ago, go on while it rises, turn when it falls."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float

from tropism.plume import checks
from tropism.plume.motion import Cardinal, Motion
from tropism.plume.strategies import steering
from tropism.plume.strategies.strategy import Strategy


class KlinotaxisMemory(eqx.Module):
    facing: Float[Array, ""]
    wanted: Float[Array, ""]
    smell: Float[Array, ""]  # a step ago


class Klinotaxis(Strategy):
    """Turns by `turn`, to either side, when the smell falls; where it does not change, only with probability `wander`.

    Expects a vector with the concentration at index `smell`, and works for all motions but `RunTumble`.
    """

    motion: Motion = Cardinal()
    smell: int = eqx.field(static=True, default=0)
    turn: Any = 90.0  # degrees
    wander: Any = 0.2

    def __check_init__(self) -> None:
        steering.check_steerable(self.motion)
        checks.positive(turn=self.turn)
        checks.fraction(wander=self.wander)

    def init(self, key: Any) -> KlinotaxisMemory:
        heading = steering.any_heading(key)
        return KlinotaxisMemory(jnp.zeros_like(heading), heading, jnp.zeros_like(heading))

    def act(self, key: Any, memory: KlinotaxisMemory, obs: Float[Array, " n"]) -> tuple[Any, KlinotaxisMemory]:
        wander_key, side_key = random.split(key)
        smell = obs[self.smell].astype(memory.smell.dtype)
        turns = (smell < memory.smell) | ((smell == memory.smell) & random.bernoulli(wander_key, self.wander))
        side = jnp.where(random.bernoulli(side_key), 1, -1)
        wanted = memory.wanted + jnp.where(turns, side * jnp.deg2rad(self.turn), 0)
        action, facing = steering.steer(self.motion, memory.facing, wanted)
        return action, KlinotaxisMemory(facing, wanted, smell)
