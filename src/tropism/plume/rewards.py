"""Rewards for reaching the source and for approaching it."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from tropism.plume.scene import Scene


class Reward(eqx.Module):
    """Abstract. `before` and `after` are the scenes before and after a step; `reached`: the step reached the goal."""

    @abstractmethod
    def __call__(self, before: Scene, action: Any, after: Scene, reached: Bool[Array, ""]) -> Float[Array, ""]: ...


class SparseGoal(Reward):
    """`goal` at the source, 0 elsewhere."""

    goal: Any = 1.0

    def __call__(self, before: Scene, action: Any, after: Scene, reached: Bool[Array, ""]) -> Float[Array, ""]:
        return jnp.where(reached, self.goal, 0.0)


class StepPenalty(Reward):
    """A cost for every step."""

    penalty: Any = 0.01

    def __call__(self, before: Scene, action: Any, after: Scene, reached: Bool[Array, ""]) -> Float[Array, ""]:
        return -jnp.asarray(self.penalty, after.agent.xy.dtype)


class ConcentrationGain(Reward):
    """Shaping by the increase of the concentration over the step."""

    scale: Any = 1.0

    def __call__(self, before: Scene, action: Any, after: Scene, reached: Bool[Array, ""]) -> Float[Array, ""]:
        return self.scale * (after.smell(after.agent.xy) - before.smell(before.agent.xy))


class Approach(Reward):
    """Potential-based shaping by the distance to the source; preserves the optimal policy (Ng et al. 1999)."""

    scale: Any = 1.0
    discount: Any = 1.0

    def __call__(self, before: Scene, action: Any, after: Scene, reached: Bool[Array, ""]) -> Float[Array, ""]:
        return self.scale * (before.distance - self.discount * after.distance)


class Singh(Reward):
    """The reward of Singh et al. 2023: reaching the source, leaving the arena, each step, and progress."""

    homed: Any = 100.0
    strayed: Any = -10.0
    living: Any = -5.0 / 300.0  # per step
    progress: Any = 1.0  # per metre

    def __call__(self, before: Scene, action: Any, after: Scene, reached: Bool[Array, ""]) -> Float[Array, ""]:
        ends = jnp.where(reached, self.homed, jnp.where(after.agent.absorbed, self.strayed, 0.0))
        return ends + self.living + self.progress * (before.distance - after.distance)


class PlumeTracking(Reward):
    """The reward of the released code of Singh et al. 2023.

    `homed` at the source, otherwise `living`; off the odour five times `living` in addition. `progress` per metre of
    approach; off the odour only of retreat. Beyond `max_stray` from the nearest puff minus `progress` times the
    distance to the source and minus the distance to the puff, twice that upwind of the source.
    """

    homed: Any = 101.0
    living: Any = -10.0 / 300.0  # per step
    progress: Any = 5.0  # per metre
    threshold: Any = 1e-4  # concentration; at most this is off the odour
    max_stray: Any = 2.0  # m

    def __call__(self, before: Scene, action: Any, after: Scene, reached: Bool[Array, ""]) -> Float[Array, ""]:
        off = after.smell(after.agent.xy) <= self.threshold
        step = jnp.where(reached, self.homed, self.living) + jnp.where(off, 5 * self.living, 0)
        approach = self.progress * (before.distance - after.distance)
        lost = self.progress * after.distance + after.stray
        lost = jnp.where(after.agent.x < after.source[0], 2 * lost, lost)
        return (
            step + jnp.where(off, jnp.minimum(approach, 0), approach) - jnp.where(after.stray > self.max_stray, lost, 0)
        )


class Sum(Reward):
    """The sum of several rewards."""

    parts: tuple[Reward, ...]

    def __call__(self, before: Scene, action: Any, after: Scene, reached: Bool[Array, ""]) -> Float[Array, ""]:
        return sum((part(before, action, after, reached) for part in self.parts), jnp.zeros(()))
