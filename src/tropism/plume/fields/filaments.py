"""Odour filaments in a turbulent wind (Farrell et al. 2002, doi:10.1023/A:1016283702837)."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, ArrayLike, Float, Int

from tropism.plume import checks
from tropism.plume.fields import births
from tropism.plume.fields.field import Field
from tropism.plume.fields.turbulence import Turbulence, TurbulenceState

STEP = 0.01  # s; the time step of the paper's noise amplitudes


class FilamentsState(eqx.Module):
    air: TurbulenceState
    x: Float[Array, " n"]  # m
    y: Float[Array, " n"]  # m
    z: Float[Array, " heights"]  # m, above the plane of source and agents; empty unless `vertical`
    squared: Float[Array, " n"]  # m², the squared radius R²; 0: no puff here
    oldest: Int[Array, ""]  # index of the next puff


class Filaments(Field):
    """Puffs are released at the source, carried by the turbulent wind, scattered and grow;
    C = Σ Q/((8π³)^½ R³) · exp(−|r − p|²/2R²). A puff that leaves the arena of `air` is removed.

    Source and agents are in the plane z = 0. With `vertical`, puffs scatter in z as well, as in the paper and in
    pompy; without it they stay in the plane, where the mean concentration is several times higher.

    The paper displaces a puff by (wind + scatter · N(0, 1)) · dt with dt = 0.01 s. That random walk
    depends on the step; here it is the equivalent diffusion, so that any `dt` can be used.

    `init` simulates `warmup` steps of `warmup_dt`, 100 s in all by default, from a wind drawn from its
    stationary distribution. That costs as much as `warmup` steps: for many short episodes share one
    realisation (`share`), which needs no warm-up, or set `warmup=0` and start without a plume.
    """

    wind_moves_odour: ClassVar[bool] = True

    source: Any = (5.0, 0.0)  # m
    air: Turbulence = Turbulence()
    rate: ArrayLike = 10.0  # puffs/s
    scatter: ArrayLike = 2.0  # m/s, standard deviation, drawn every 0.01 s
    radius: ArrayLike = 0.001**0.5  # m, at birth
    growth: ArrayLike = 0.001  # m²/s, of R²
    amount: ArrayLike = 8.3e8  # molecules in a puff, Q
    dt: ArrayLike = 0.1  # s, one step of the environment
    warmup_dt: ArrayLike = 0.5  # s
    vertical: bool = eqx.field(static=True, default=True)
    warmup: int = eqx.field(static=True, default=200)
    max_puffs: int = eqx.field(static=True, default=1000)
    max_births: int = eqx.field(static=True, default=32)  # per step

    def __check_init__(self):
        checks.require_point(source=self.source)
        checks.require_non_negative(rate=self.rate, scatter=self.scatter, growth=self.growth, amount=self.amount)
        checks.require_positive(radius=self.radius, dt=self.dt, warmup_dt=self.warmup_dt)
        checks.require_count(max_puffs=self.max_puffs, max_births=self.max_births)
        checks.require_count(at_least=0, warmup=self.warmup)

    @property
    def step_duration(self) -> Any:
        return self.dt

    def init(self, key: Any) -> FilamentsState:
        air_key, grow_key = random.split(key)
        none = jnp.zeros(self.max_puffs)
        heights = none if self.vertical else jnp.zeros(0)
        state = FilamentsState(self.air.init(air_key), none, none, heights, none, jnp.zeros((), jnp.int32))
        if self.warmup == 0:
            return state
        return jax.lax.fori_loop(
            0, self.warmup, lambda i, previous: self._step(random.fold_in(grow_key, i), previous, self.warmup_dt), state
        )

    def advance(self, key: Any, state: FilamentsState) -> FilamentsState:
        return self._step(key, state, self.dt)

    def concentration(self, state: FilamentsState, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        peak, squared = self._puffs(state)
        distance = (xy[..., 0, None] - state.x) ** 2 + (xy[..., 1, None] - state.y) ** 2
        return (peak * jnp.exp(distance * (-0.5 / squared))).sum(-1)

    def raster(
        self, state: FilamentsState, x: Float[Array, " width"], y: Float[Array, " height"]
    ) -> Float[Array, "height width"]:
        """A matrix product: each puff is a function of x times a function of y."""
        peak, squared = self._puffs(state)
        across = jnp.exp((x[:, None] - state.x) ** 2 * (-0.5 / squared))
        up = jnp.exp((y[:, None] - state.y) ** 2 * (-0.5 / squared))
        return jnp.matmul(up * peak, across.T, precision=jax.lax.Precision.HIGHEST)

    def _puffs(self, state: FilamentsState) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The concentration in the plane at the x and y of each puff, 0 for unused entries, and its R²."""
        alive = state.squared > 0
        squared = jnp.where(alive, state.squared, 1)
        peak = self.amount / ((8 * jnp.pi**3) ** 0.5 * squared**1.5)
        if self.vertical:
            peak = peak * jnp.exp(state.z**2 * (-0.5 / squared))
        return jnp.where(alive, peak, 0), squared

    def wind(self, state: FilamentsState, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        return jnp.stack(self.air.velocity(state.air, xy[..., 0], xy[..., 1]), axis=-1)

    def puffs(self, state: FilamentsState) -> tuple[Any, Any, Any]:
        return state.x, state.y, state.squared > 0

    def check_arena(self, low: Any, high: Any) -> None:
        births.check_capacity(self.max_puffs, self.rate, self.source, self.air.mean, low, high)

    def _step(self, key: Any, state: FilamentsState, dt: Any) -> FilamentsState:
        air_key, scatter_key, birth_key = random.split(key, 3)
        air = self.air.advance(air_key, state.air, dt)
        new_puffs = births.draw(birth_key, self.rate, dt, self.max_births)
        slot = births.slots(new_puffs, state.oldest, self.max_puffs)
        x = state.x.at[slot].set(self.source[0], mode="drop")
        y = state.y.at[slot].set(self.source[1], mode="drop")
        squared = state.squared.at[slot].set(self.radius**2, mode="drop")
        # New puffs move and grow only for the rest of the step.
        time = jnp.full(x.shape, dt).at[slot].set(dt - new_puffs.wait, mode="drop")
        u, v = self.air.velocity(air, x, y)
        walk = (
            self.scatter
            * STEP**0.5
            * jnp.sqrt(time)
            * random.normal(scatter_key, (3 if self.vertical else 2, *x.shape))
        )
        x, y = x + u * time + walk[0], y + v * time + walk[1]
        z = state.z.at[slot].set(0.0, mode="drop") + walk[2] if self.vertical else state.z
        alive = (squared > 0) & self.air.contains(x, y)
        squared = jnp.where(alive, squared + self.growth * time, 0)
        return FilamentsState(air, x, y, z, squared, (state.oldest + new_puffs.count) % self.max_puffs)
