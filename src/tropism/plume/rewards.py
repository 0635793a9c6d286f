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


class Sum(Reward):
    """The sum of several rewards."""

    parts: tuple[Reward, ...]

    def __call__(self, before: Scene, action: Any, after: Scene, reached: Bool[Array, ""]) -> Float[Array, ""]:
        return sum((part(before, action, after, reached) for part in self.parts), jnp.zeros(()))
