"""Cast and surge, as moths do: fly upwind on odour; without it, cast across the wind in widening sweeps."""

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
    heading: Float[Array, ""]
    speed: Float[Array, ""]  # along the heading in the last step, length units per second; only for apparent wind
    since: Float[Array, ""]  # steps since the last odour
    leg: Int[Array, ""]  # number of the cast's leg; 0 while surging
    left: Float[Array, ""]  # remaining steps of the leg
    side: Float[Array, ""]  # 1: casts to the left of upwind, -1: to the right


class UpwindStrategy(Strategy):
    """Abstract: steers by odour and wind.

    Expects a vector with the concentration at index `smell` and the wind at the indices `wind`: as (x, y) for
    `Cardinal` and `Compass`, as (forward, left) for `Oriented` and `Continuous`; `apparent` if the wind is apparent.
    """

    motion: Motion = Cardinal()
    smell: int = eqx.field(static=True, default=0)
    wind: tuple[int, int] = eqx.field(static=True, default=(1, 2))
    apparent: bool = eqx.field(static=True, default=False)
    threshold: Any = 0.003  # of detection, for a sensor with values from 0 to 1

    def __check_init__(self) -> None:
        steering.check_steerable(self.motion)
        checks.require_positive(threshold=self.threshold)
        if self.apparent and not isinstance(self.motion, Continuous):
            raise ValidationError("apparent", True, "False, except for a Continuous motion")

    def upwind(self, heading: Float[Array, ""], speed: Float[Array, ""], obs: Float[Array, " n"]) -> Float[Array, ""]:
        """The heading towards the wind, for an agent with this heading and, in an apparent wind, this speed."""
        wind = obs[jnp.array(self.wind)].astype(heading.dtype)
        if self.apparent:
            wind = wind.at[0].add(speed)
        angle = jnp.arctan2(-wind[1], -wind[0])
        return angle if steering.has_compass(self.motion) else heading + angle


class CastAndSurge(UpwindStrategy):
    """Moves upwind for `surge` steps after each detection, then casts: leg n lasts n · `width` steps.

    The observation is that of `UpwindStrategy`.
    """

    surge: Any = 3.0  # steps
    width: Any = 10.0  # steps
    angle: Any = 90.0  # degrees between upwind and a leg; above 90 a cast drifts downwind

    def __check_init__(self) -> None:
        checks.require_positive(width=self.width, angle=self.angle)
        checks.require_non_negative(surge=self.surge)

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
        upwind = self.upwind(memory.heading, memory.speed, obs)
        target_heading = jnp.where(surging, upwind, upwind + side * jnp.deg2rad(self.angle))
        action, heading = steering.steer(self.motion, memory.heading, target_heading)
        speed = steering.speed_after(self.motion, action, memory.speed)
        return action, CastAndSurgeMemory(heading, speed.astype(heading.dtype), since, leg, left, side)
