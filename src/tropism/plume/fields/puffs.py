"""Puffs carried by a uniform wind (Singh et al. 2023, doi:10.1038/s42256-022-00599-w)."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, ArrayLike, Float, Int

from tropism.errors import ValidationError
from tropism.plume import checks
from tropism.plume.fields import births
from tropism.plume.fields.field import Field
from tropism.plume.wind import Constant, Wind

HISTORY = 256  # samples of the wind before the episode


class PuffsState(eqx.Module):
    x: Float[Array, " n"]  # m
    y: Float[Array, " n"]  # m
    radius: Float[Array, " n"]  # m; 0: no puff here
    oldest: Int[Array, ""]  # index of the next puff
    flow: Any


class Puffs(Field):
    """Puffs are released at the source, drift with the wind, jitter in y and grow; C = Σ (r0/r)³ of those at a point.

    One step of the environment is `substeps` of `dt`; in each a puff moves by the wind and by
    N(0, shake) · dt in y, and then Poisson(rate · dt) puffs are released. The substeps between two births are
    computed at once, with the same distribution. The plume is developed from the start: `init` draws
    ages, wind path and displacements from their stationary distribution.

    The newest `max_puffs` are kept: 2200 reach across 10 m at 0.5 m/s for any draw. Puffs outside `low` and `high`,
    if given, are removed. In a sparse plume only the fraction `keep` of the puffs is released. The released code of
    the paper tests the square around a puff; so does `square`, which adds 20 to 25 % to the concentration.
    """

    wind_moves_odour: ClassVar[bool] = True

    source: Any = (0.0, 0.0)  # m
    flow: Wind = Constant((0.5, 0.0))  # m/s
    rate: ArrayLike = 100.0  # puffs/s
    keep: ArrayLike = 1.0  # fraction
    shake: ArrayLike = 0.5  # m/s, standard deviation, drawn every substep
    radius: ArrayLike = 0.01  # m, at birth
    growth: ArrayLike = 0.01  # m/s, of the radius
    dt: ArrayLike = 0.01  # s
    low: Any = None  # m, one corner of the area in which puffs exist
    high: Any = None  # m, the opposite one
    square: bool = eqx.field(static=True, default=False)
    substeps: int = eqx.field(static=True, default=4)
    max_puffs: int = eqx.field(static=True, default=2200)
    max_births: int = eqx.field(static=True, default=32)  # per step

    def __check_init__(self):
        checks.require_point(source=self.source)
        checks.require_non_negative(rate=self.rate, shake=self.shake, growth=self.growth)
        checks.require_fraction(keep=self.keep)
        checks.require_positive(radius=self.radius, dt=self.dt)
        if (self.low is None) != (self.high is None):
            raise ValidationError("high", self.high, f"a point if low, {self.low}, is one")
        if self.low is not None:
            checks.require_point(low=self.low, high=self.high)
        checks.require_count(substeps=self.substeps, max_puffs=self.max_puffs, max_births=self.max_births)

    @property
    def step_duration(self) -> Any:
        return self.substeps * self.dt

    def init(self, key: Any) -> PuffsState:
        flow_key, age_key, past_key, shake_key = random.split(key, 4)
        flow = self.flow.init(flow_key)
        age = births.ages(age_key, self.rate * self.keep, self.max_puffs)
        substeps = jnp.floor(age / self.dt)
        drift = self._past_drift(past_key, flow, substeps * self.dt)
        jitter = self.shake * self.dt * jnp.sqrt(substeps) * random.normal(shake_key, (self.max_puffs,))
        alive = jnp.isfinite(age)
        x = jnp.where(alive, self.source[0] + drift[0], 0)
        y = jnp.where(alive, self.source[1] + drift[1] + jitter, 0)
        radius = jnp.where(alive, self.radius + self.growth * self.dt * substeps, 0)
        return PuffsState(x, y, self.trim(x, y, radius), jnp.zeros((), jnp.int32), flow)

    def advance(self, key: Any, state: PuffsState) -> PuffsState:
        flow_key, shake_key, birth_key = random.split(key, 3)
        flow, displacement = self._advance_wind(flow_key, state.flow)
        normal = random.normal(shake_key, state.x.shape)
        x = state.x + displacement[0, 0]
        y = state.y + displacement[0, 1] + self.shake * self.dt * jnp.sqrt(self.substeps) * normal
        grown = jnp.where(state.radius > 0, state.radius + self.growth * self.dt * self.substeps, 0)
        grown = self.trim(x, y, grown)
        new_puffs = births.draw(birth_key, self.rate * self.keep, self.step_duration, self.max_births)
        return self._add_births(PuffsState(x, y, grown, state.oldest, flow), new_puffs, displacement, normal)

    def concentration(self, state: PuffsState, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        x, y = xy[..., 0, None], xy[..., 1, None]
        if self.square:
            inside = jnp.maximum(jnp.abs(x - state.x), jnp.abs(y - state.y)) < state.radius
        else:
            inside = (x - state.x) ** 2 + (y - state.y) ** 2 < state.radius**2
        strength = (self.radius / jnp.maximum(state.radius, self.radius)) ** 3
        return jnp.where(inside, strength, 0).sum(-1)

    def wind(self, state: PuffsState, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        return jnp.broadcast_to(self.flow.velocity(state.flow), xy.shape)

    def puffs(self, state: PuffsState) -> tuple[Any, Any, Any]:
        return state.x, state.y, state.radius > 0

    def check_arena(self, low: Any, high: Any) -> None:
        if self.low is not None:
            low, high = np.maximum(low, self.low), np.minimum(high, self.high)
        births.check_capacity(self.max_puffs, self.rate * self.keep, self.source, self.flow.mean(), low, high)

    def trim(self, x: Any, y: Any, radius: Any) -> Any:
        """The radii, 0 for puffs outside the area."""
        if self.low is None:
            return radius
        inside = (x > self.low[0]) & (x < self.high[0]) & (y > self.low[1]) & (y < self.high[1])
        return jnp.where(inside, radius, 0)

    def _past_drift(self, key: Any, flow: Any, age: Float[Array, " n"]) -> Float[Array, "2 n"]:
        """The distance that the wind has carried puffs of each age."""
        spacing = age[0] / (HISTORY - 1)
        velocity = self.flow.past(key, flow, spacing, HISTORY)
        drift = jnp.concatenate([jnp.zeros((1, 2)), jnp.cumsum(velocity[:-1], axis=0)]) * spacing
        time = jnp.arange(HISTORY) * spacing
        return jax.vmap(lambda path: jnp.interp(age, time, path), in_axes=1)(drift)

    def _advance_wind(self, key: Any, flow: Any) -> tuple[Any, Float[Array, "{self.substeps} 2"]]:
        """The wind after a step, and its displacement from the start of each substep to the end of the step."""
        drift: list[Any] = []
        for substep_key in random.split(key, self.substeps):
            drift.append(self.flow.velocity(flow) * self.dt)
            flow = self.flow.advance(substep_key, flow, self.dt)
        return flow, jnp.cumsum(jnp.stack(drift)[::-1], axis=0)[::-1]

    def _add_births(self, state: PuffsState, new_puffs: births.Births, displacement: Any, normal: Any) -> PuffsState:
        """Add new puffs, which appear at the end of their substep and move in the remaining ones."""
        slot = births.slots(new_puffs, state.oldest, self.max_puffs)
        substep = jnp.minimum((new_puffs.wait / self.dt).astype(jnp.int32), self.substeps - 1)
        remaining = self.substeps - 1 - substep
        drift = jnp.concatenate([displacement[1:], jnp.zeros((1, 2))])[substep]
        jitter = self.shake * self.dt * jnp.sqrt(remaining) * normal[slot % self.max_puffs]
        return PuffsState(
            state.x.at[slot].set(self.source[0] + drift[:, 0], mode="drop"),
            state.y.at[slot].set(self.source[1] + drift[:, 1] + jitter, mode="drop"),
            state.radius.at[slot].set(self.radius + self.growth * self.dt * remaining, mode="drop"),
            (state.oldest + new_puffs.count) % self.max_puffs,
            state.flow,
        )
