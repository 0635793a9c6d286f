"""Puffs carried by a wind that is the same everywhere (Singh et al. 2023, doi:10.1038/s42256-022-00599-w)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, ArrayLike, Float, Int

from tropism.plume import checks
from tropism.plume.fields import births
from tropism.plume.fields.field import Field
from tropism.plume.wind import Constant, Wind

HISTORY = 256  # points on the wind's path before the episode


class PuffsState(eqx.Module):
    x: Float[Array, " n"]  # m
    y: Float[Array, " n"]  # m
    radius: Float[Array, " n"]  # m; 0: no puff here
    oldest: Int[Array, ""]  # where the next puff goes
    flow: Any


class Puffs(Field):
    """Puffs are born at the source, drift with the wind, shake in y and grow; C = Σ (r0/r)³ of those around a point.

    One step of the environment is `substeps` of `dt`, in each of which a puff moves by the wind and by
    N(0, shake) · dt in y, and then Poisson(rate · dt) puffs are born. The steps between two births are
    taken at once, which changes no distribution. The plume is fully grown from the start: `init` draws
    ages, wind path and displacements as after an endless time.

    `max_puffs` are kept, the newest: 2200 are enough to cross 10 m at 0.5 m/s, whatever the draw.
    A sparse plume keeps the fraction `keep` of the puffs.
    """

    source: Any = (0.0, 0.0)  # m
    flow: Wind = Constant((0.5, 0.0))  # m/s
    rate: ArrayLike = 100.0  # puffs/s
    keep: ArrayLike = 1.0  # fraction
    shake: ArrayLike = 0.5  # m/s, standard deviation, drawn afresh each substep
    radius: ArrayLike = 0.01  # m, at birth
    growth: ArrayLike = 0.01  # m/s, of the radius
    dt: ArrayLike = 0.01  # s
    substeps: int = eqx.field(static=True, default=4)
    max_puffs: int = eqx.field(static=True, default=2200)
    max_births: int = eqx.field(static=True, default=32)  # a step

    def __check_init__(self):
        checks.point(source=self.source)
        checks.non_negative(rate=self.rate, shake=self.shake, growth=self.growth)
        checks.fraction(keep=self.keep)
        checks.positive(radius=self.radius, dt=self.dt)
        checks.count(substeps=self.substeps, max_puffs=self.max_puffs, max_births=self.max_births)

    def init(self, key: Any) -> PuffsState:
        flow_key, age_key, past_key, shake_key = random.split(key, 4)
        flow = self.flow.init(flow_key)
        age = births.ages(age_key, self.rate * self.keep, self.max_puffs)
        substeps = jnp.floor(age / self.dt)
        drift = self._drift_before(past_key, flow, substeps * self.dt)
        shaken = self.shake * self.dt * jnp.sqrt(substeps) * random.normal(shake_key, (self.max_puffs,))
        alive = jnp.isfinite(age)
        x = jnp.where(alive, self.source[0] + drift[0], 0)
        y = jnp.where(alive, self.source[1] + drift[1] + shaken, 0)
        radius = jnp.where(alive, self.radius + self.growth * self.dt * substeps, 0)
        return PuffsState(x, y, radius, jnp.zeros((), jnp.int32), flow)

    def advance(self, key: Any, state: PuffsState) -> PuffsState:
        flow_key, shake_key, birth_key = random.split(key, 3)
        flow, moved = self._blow(flow_key, state.flow)
        normal = random.normal(shake_key, state.x.shape)
        x = state.x + moved[0, 0]
        y = state.y + moved[0, 1] + self.shake * self.dt * jnp.sqrt(self.substeps) * normal
        grown = jnp.where(state.radius > 0, state.radius + self.growth * self.dt * self.substeps, 0)
        born = births.draw(birth_key, self.rate * self.keep, self.substeps * self.dt, self.max_births)
        return self._add(PuffsState(x, y, grown, state.oldest, flow), born, moved, normal)

    def concentration(self, state: PuffsState, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        x, y = xy[..., 0, None], xy[..., 1, None]
        inside = (x - state.x) ** 2 + (y - state.y) ** 2 < state.radius**2
        strength = (self.radius / jnp.maximum(state.radius, self.radius)) ** 3
        return jnp.where(inside, strength, 0).sum(-1)

    def wind(self, state: PuffsState, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        return jnp.broadcast_to(self.flow.velocity(state.flow), xy.shape)

    def _drift_before(self, key: Any, flow: Any, age: Float[Array, " n"]) -> Float[Array, "2 n"]:
        """How far the wind has carried puffs of an age by now."""
        spacing = age[0] / (HISTORY - 1)
        velocity = self.flow.past(key, flow, spacing, HISTORY)
        carried = jnp.concatenate([jnp.zeros((1, 2)), jnp.cumsum(velocity[:-1], axis=0)]) * spacing
        time = jnp.arange(HISTORY) * spacing
        return jax.vmap(lambda path: jnp.interp(age, time, path), in_axes=1)(carried)

    def _blow(self, key: Any, flow: Any) -> tuple[Any, Float[Array, "{self.substeps} 2"]]:
        """The wind after a step, and how far it carries from the start of each substep to the end of the step."""
        carried: list[Any] = []
        for substep_key in random.split(key, self.substeps):
            carried.append(self.flow.velocity(flow) * self.dt)
            flow = self.flow.advance(substep_key, flow, self.dt)
        return flow, jnp.cumsum(jnp.stack(carried)[::-1], axis=0)[::-1]

    def _add(self, state: PuffsState, born: births.Births, moved: Any, normal: Any) -> PuffsState:
        """The newborn, which appear at the end of their substep and take part in those that remain."""
        place = births.places(born, state.oldest, self.max_puffs)
        substep = jnp.minimum((born.wait / self.dt).astype(jnp.int32), self.substeps - 1)
        remaining = self.substeps - 1 - substep
        carried = jnp.concatenate([moved[1:], jnp.zeros((1, 2))])[substep]
        shaken = self.shake * self.dt * jnp.sqrt(remaining) * normal[place % self.max_puffs]
        return PuffsState(
            state.x.at[place].set(self.source[0] + carried[:, 0], mode="drop"),
            state.y.at[place].set(self.source[1] + carried[:, 1] + shaken, mode="drop"),
            state.radius.at[place].set(self.radius + self.growth * self.dt * remaining, mode="drop"),
            (state.oldest + born.count) % self.max_puffs,
            state.flow,
        )
