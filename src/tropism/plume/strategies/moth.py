"""A moth that counter-turns: it zigzags upwind by an inner clock, and ever wider the longer it smells nothing."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, ArrayLike, Float

from tropism.plume import checks
from tropism.plume.strategies import steering
from tropism.plume.strategies.cast_and_surge import UpwindStrategy

LONGEST = 100.0  # steps since the last odour, until which casts get longer


class MothMemory(eqx.Module):
    heading: Float[Array, ""]
    speed: Float[Array, ""]  # along the heading in the last step, length units per second; only for apparent wind
    since: Float[Array, ""]  # steps since the last odour
    clock: Float[Array, ""]  # steps since the last turn
    side: Float[Array, ""]  # 1: flies to the left of upwind, -1: to the right


class CounterTurning(UpwindStrategy):
    """Turns to the other side of upwind every `period` steps, and at once `delay` steps after losing the odour.

    The angle to upwind grows from `narrow` on odour to 90°, casting, `widening` steps after it (Baker 1990); from then
    on the casts get longer. The observation and the motions are those of `UpwindStrategy`.
    """

    narrow: ArrayLike = 20.0  # degrees
    widening: ArrayLike = 10.0  # steps
    delay: ArrayLike = 2.0  # steps
    period: ArrayLike = 8.0  # steps

    def __check_init__(self) -> None:
        checks.require_positive(widening=self.widening, period=self.period)
        checks.require_non_negative(narrow=self.narrow, delay=self.delay)

    def init(self, key: Any) -> MothMemory:
        zero = jnp.zeros(())
        side = jnp.where(random.bernoulli(key), 1.0, -1.0)
        return MothMemory(zero, zero, jnp.full_like(zero, jnp.inf), zero, side)

    def act(self, key: Any, memory: MothMemory, obs: Float[Array, " n"]) -> tuple[Any, MothMemory]:
        since = jnp.where(obs[self.smell] >= self.threshold, 0, memory.since + 1)
        since_at_turn = jnp.minimum(since, LONGEST) - memory.clock - 1
        interval = self.period * jnp.maximum(since_at_turn / self.widening, 1)
        turns = (memory.clock + 1 >= interval) | (since == self.delay)
        clock = jnp.where(turns, 0, memory.clock + 1)
        side = jnp.where(turns, -memory.side, memory.side)
        share = jnp.minimum(since / self.widening, 1)
        angle = jnp.deg2rad(self.narrow + (90 - self.narrow) * share)
        upwind = self.upwind(memory.heading, memory.speed, obs)
        action, heading = steering.steer(self.motion, memory.heading, upwind + side * angle)
        speed = steering.speed_after(self.motion, action, memory.speed)
        return action, MothMemory(heading, speed.astype(heading.dtype), since, clock, side)
