"""Cast and surge, as moths do: upwind on smell, and when it is lost to and fro across the wind, wider each time."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, Int

from tropism.errors import ValidationError
from tropism.plume import checks
from tropism.plume.motion import Cardinal, Continuous, Motion
from tropism.plume.strategies import steering
from tropism.plume.strategies.strategy import Strategy


class CastAndSurgeMemory(eqx.Module):
    facing: Float[Array, ""]
    speed: Float[Array, ""]  # along the heading in the last step, length units a second; only where wind is apparent
    since: Float[Array, ""]  # steps since the smell
    leg: Int[Array, ""]  # number of the cast's leg; 0 while surging
    left: Float[Array, ""]  # steps left of it
    side: Float[Array, ""]  # 1: casts to the left of upwind, -1: to the right


class CastAndSurge(Strategy):
    """Goes upwind for `surge` steps after each smell, then casts: leg n lasts n · `width` steps.

    Expects a vector with the smell at index `smell` and the wind at the indices `wind`: as (x, y) for `Cardinal` and
    `Compass`, as (forward, left) for `Oriented` and `Continuous`; `apparent` where it is what a flyer feels.
    """

    motion: Motion = Cardinal()
    smell: int = eqx.field(static=True, default=0)
    wind: tuple[int, int] = eqx.field(static=True, default=(1, 2))
    apparent: bool = eqx.field(static=True, default=False)
    threshold: Any = 0.003  # the least smell that is one, as a nose tells it that goes from 0 to 1
    surge: Any = 3.0  # steps
    width: Any = 10.0  # steps
    angle: Any = 90.0  # degrees between upwind and a leg; above 90 a cast drifts downwind

    def __check_init__(self) -> None:
        steering.check_steerable(self.motion)
        checks.positive(threshold=self.threshold, width=self.width, angle=self.angle)
        checks.non_negative(surge=self.surge)
        if self.apparent and not isinstance(self.motion, Continuous):
            raise ValidationError("apparent", True, "False, but for a Continuous motion")

    def init(self, key: Any) -> CastAndSurgeMemory:
        zero = jnp.zeros(())
        side = jnp.where(random.bernoulli(key), 1.0, -1.0)
        return CastAndSurgeMemory(zero, zero, jnp.full_like(zero, jnp.inf), jnp.int32(0), zero, side)

    def act(self, key: Any, memory: CastAndSurgeMemory, obs: Float[Array, " n"]) -> tuple[Any, CastAndSurgeMemory]:
        since = jnp.where(obs[self.smell] >= self.threshold, 0, memory.since + 1)
        surging = since <= self.surge
        turns = ~surging & (memory.left <= 0)
        leg = jnp.where(surging, 0, memory.leg + turns)
        left = jnp.where(surging, 0, jnp.where(turns, leg * self.width, memory.left) - 1)
        side = jnp.where(turns, -memory.side, memory.side)
        upwind = self._upwind(memory, obs)
        wanted = jnp.where(surging, upwind, upwind + side * jnp.deg2rad(self.angle))
        action, facing = steering.steer(self.motion, memory.facing, wanted)
        speed = action[1] * self.motion.speed if isinstance(self.motion, Continuous) else memory.speed
        return action, CastAndSurgeMemory(facing, speed.astype(facing.dtype), since, leg, left, side)

    def _upwind(self, memory: CastAndSurgeMemory, obs: Float[Array, " n"]) -> Float[Array, ""]:
        """Where the wind comes from, as a heading."""
        wind = obs[jnp.array(self.wind)].astype(memory.facing.dtype)
        if self.apparent:
            wind = wind.at[0].add(memory.speed)
        angle = jnp.arctan2(-wind[1], -wind[0])
        return angle if steering.has_compass(self.motion) else memory.facing + angle
