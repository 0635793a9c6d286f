"""A walking fly that follows odour by ON and OFF responses (Álvarez-Salvado et al. 2018, doi:10.7554/eLife.37815)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, ArrayLike, Float

from tropism.errors import ValidationError
from tropism.plume.motion import Continuous
from tropism.plume.strategies.strategy import Strategy

SECONDS = 0.02  # per step, at which all numbers of the model apply


class FlyMemory(eqx.Module):
    adaptation_on: Float[Array, ""]
    adaptation_off: Float[Array, ""]
    on: Float[Array, ""]
    fast: Float[Array, ""]
    slow: Float[Array, ""]


class Fly(Strategy):
    """Odour drives the fly upwind and straightens its path; its loss slows the fly and makes it turn.

    Expects a vector with the concentration at index `smell` and the egocentric wind (forward, left) at `wind`, and a
    `Continuous` motion with 0.02 s per step. Times are in steps, angles in degrees.
    """

    motion: Continuous
    smell: int = eqx.field(static=True, default=0)
    wind: tuple[int, int] = eqx.field(static=True, default=(1, 2))
    half: ArrayLike = 0.01  # concentration of half the response without adaptation
    time_adaptation: tuple[ArrayLike, ArrayLike] = (490.0, 504.0)  # of the ON and the OFF response
    time_on: ArrayLike = 36.0
    time_off: tuple[ArrayLike, ArrayLike] = (31.0, 242.0)  # the fast and the slow filter
    turns: tuple[ArrayLike, ArrayLike, ArrayLike] = (0.12, -0.03, 0.75)  # probability: at rest, per ON, per OFF
    turn: ArrayLike = 20.0  # times the square of a normal number, to either side
    upwind: ArrayLike = 5.0  # per step, times ON and the sine of the angle to upwind
    downwind: ArrayLike = 0.5  # per step, times the sine of the angle to downwind
    speed: ArrayLike = 6.0  # length units per second; in the paper mm
    speed_changes: tuple[ArrayLike, ArrayLike] = (0.45, -0.8)  # per ON, per OFF

    def __check_init__(self) -> None:
        if not isinstance(self.motion, Continuous):
            raise ValidationError("motion", self.motion, "a Continuous motion")
        if isinstance(self.motion.dt, float) and abs(self.motion.dt - SECONDS) > 1e-9:
            raise ValidationError("motion", self.motion.dt, f"a motion with dt={SECONDS}, the model's step")

    def init(self, key: Any) -> FlyMemory:
        zero = jnp.zeros(())
        return FlyMemory(zero, zero, zero, zero, zero)

    def act(self, key: Any, memory: FlyMemory, obs: Float[Array, " n"]) -> tuple[Any, FlyMemory]:
        memory = self.respond(memory, obs[self.smell].astype(memory.on.dtype))
        on, off = memory.on, jnp.maximum(memory.slow - memory.fast, 0)
        turn_key, side_key, size_key = random.split(key, 3)
        turns = random.bernoulli(turn_key, jnp.clip(self.turns[0] + self.turns[1] * on + self.turns[2] * off, 0, 1))
        size = jnp.where(random.bernoulli(side_key), 1, -1) * self.turn * random.normal(size_key) ** 2
        forward, left = obs[self.wind[0]], obs[self.wind[1]]
        to_left = -left / jnp.maximum(jnp.hypot(forward, left), 1e-9)  # the sine of the angle to upwind
        angle = jnp.where(turns, size, 0) + (self.upwind * on - self.downwind) * to_left
        speed = self.speed * (1 + self.speed_changes[0] * on + self.speed_changes[1] * off)
        fraction = jnp.deg2rad(angle) / (self.motion.turn_rate * self.motion.dt)
        action = jnp.stack([jnp.clip(fraction, -1, 1), jnp.clip(speed / self.motion.speed, 0, 1)])
        return action.astype(jnp.float32), memory

    def respond(self, memory: FlyMemory, odour: Float[Array, ""]) -> FlyMemory:
        """The filters after one more sample of the concentration."""
        adaptation_on = memory.adaptation_on + (odour - memory.adaptation_on) / self.time_adaptation[0]
        adaptation_off = memory.adaptation_off + (odour - memory.adaptation_off) / self.time_adaptation[1]
        on, off = (odour / (odour + self.half + each) for each in (adaptation_on, adaptation_off))
        return FlyMemory(
            adaptation_on,
            adaptation_off,
            memory.on + (on - memory.on) / self.time_on,
            memory.fast + (off - memory.fast) / self.time_off[0],
            memory.slow + (off - memory.slow) / self.time_off[1],
        )
