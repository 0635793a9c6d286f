"""Klinotaxis: compare the concentration with the last one; go straight while it rises, turn when it falls."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float

from tropism.plume import checks
from tropism.plume.motion import Cardinal, Motion
from tropism.plume.strategies import steering
from tropism.plume.strategies.strategy import SmellMemory, Strategy


class Klinotaxis(Strategy):
    """Turns by `turn`, to either side, when the concentration falls; if it is constant, with probability `wander`.

    Expects a vector with the concentration at index `smell`; supports all motions except `RunTumble`.
    """

    motion: Motion = Cardinal()
    smell: int = eqx.field(static=True, default=0)
    turn: Any = 90.0  # degrees
    wander: Any = 0.2

    def __check_init__(self) -> None:
        steering.check_steerable(self.motion)
        checks.require_positive(turn=self.turn)
        checks.require_fraction(wander=self.wander)

    def init(self, key: Any) -> SmellMemory:
        return SmellMemory.start(key)

    def act(self, key: Any, memory: SmellMemory, obs: Float[Array, " n"]) -> tuple[Any, SmellMemory]:
        wander_key, side_key = random.split(key)
        smell = obs[self.smell].astype(memory.smell.dtype)
        turns = (smell < memory.smell) | ((smell == memory.smell) & random.bernoulli(wander_key, self.wander))
        side = jnp.where(random.bernoulli(side_key), 1, -1)
        target_heading = memory.target_heading + jnp.where(turns, side * jnp.deg2rad(self.turn), 0)
        action, heading = steering.steer(self.motion, memory.heading, target_heading)
        return action, SmellMemory(heading, target_heading, smell)
