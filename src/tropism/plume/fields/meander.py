"""A Gaussian plume that widens downwind and whose centre line meanders."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, ArrayLike, Float

from tropism.plume import checks, ornstein_uhlenbeck
from tropism.plume.fields.field import Field


class MeanderState(eqx.Module):
    cross_wind: Float[Array, ""]  # length units/s, to the left of the mean wind
    path: Float[Array, " history"]  # length units, the displacement by the cross wind until 0, 1, … steps ago


class Meander(Field):
    """C = σ0/σ(d) · exp(−(c − centre(d, t))²/2σ(d)²) at d downwind and c across, nothing upwind.

    σ(d) = σ0 + growth · d. The wind is the mean wind and a cross wind, the same everywhere, whose velocity is an
    Ornstein–Uhlenbeck process. It carries the odour: the centre line at d is the displacement by the cross wind
    since the odour there left the source, d/speed ago, so its variance is that of Taylor (1921),
    2·gust²·τ·(a − τ·(1 − exp(−a/τ))) at the age a. The agent senses the same wind.

    The defaults suit an arena of 128 × 128 unit cells, one step per second: the source near the left edge,
    wind +x at 2 cells per second, σ from 2 cells at the source to about 10 at the far edge, gusts of a quarter of
    the wind with a correlation time of 15 s. `history · dt · speed` must reach across the arena.
    """

    wind_moves_odour: ClassVar[bool] = True

    source: Any = (16.0, 64.0)
    direction: ArrayLike = 0.0  # rad, where the wind blows to; 0 is +x, counter-clockwise is positive
    speed: ArrayLike = 2.0  # length units/s
    sigma: ArrayLike = 2.0  # length units, σ0
    growth: ArrayLike = 0.07  # length units of σ per length unit downwind
    gust: ArrayLike = 0.5  # length units/s, standard deviation of the cross wind
    time_constant: ArrayLike = 15.0  # s, correlation time τ of the cross wind
    dt: ArrayLike = 1.0  # s, one step of the environment
    history: int = eqx.field(static=True, default=96)

    def __check_init__(self):
        checks.require_point(source=self.source)
        checks.require_finite(direction=self.direction)
        checks.require_positive(speed=self.speed, sigma=self.sigma, time_constant=self.time_constant, dt=self.dt)
        checks.require_non_negative(growth=self.growth, gust=self.gust)
        checks.require_count(at_least=2, history=self.history)

    @classmethod
    def for_grid(cls, width: int, height: int) -> "Meander":
        """The field for a grid of unit cells; the source is near the left edge, with space downwind."""
        return cls(source=(float(width // 8), float(height // 2)))

    @property
    def step_duration(self) -> Any:
        return self.dt

    def init(self, key: Any) -> MeanderState:
        start_key, path_key, integral_key = random.split(key, 3)
        start = jnp.asarray(self.gust * random.normal(start_key))
        wind = ornstein_uhlenbeck.path(path_key, start, self.gust, self.time_constant, self.dt, self.history)
        normal = random.normal(integral_key, (self.history - 1,))
        numbers = (self.gust, self.time_constant, self.dt)
        drift = ornstein_uhlenbeck.integral(normal, wind[1:], wind[:-1], *numbers)
        return MeanderState(start, jnp.concatenate([jnp.zeros(1), -jnp.cumsum(drift)]))

    def advance(self, key: Any, state: MeanderState) -> MeanderState:
        numbers = (self.gust, self.time_constant, self.dt)
        wind, drift = ornstein_uhlenbeck.step_and_integral(key, state.cross_wind, *numbers)
        return MeanderState(wind, jnp.concatenate([state.path[:1] + drift, state.path[:-1]]))

    def concentration(self, state: MeanderState, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        x, y = xy[..., 0] - self.source[0], xy[..., 1] - self.source[1]
        cos, sin = jnp.cos(self.direction), jnp.sin(self.direction)
        down, across = cos * x + sin * y, cos * y - sin * x
        width = self.sigma + self.growth * jnp.maximum(down, 0)
        shape = jnp.exp(-((across - self.centre(state, down)) ** 2) / (2 * width**2))
        return jnp.where(down >= 0, self.sigma / width * shape, 0)

    def wind(self, state: MeanderState, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        cos, sin = jnp.cos(self.direction), jnp.sin(self.direction)
        u, v = self.speed * cos - state.cross_wind * sin, self.speed * sin + state.cross_wind * cos
        return jnp.broadcast_to(jnp.stack([u, v]), xy.shape)

    def centre(self, state: MeanderState, down: Float[Array, "*points"]) -> Float[Array, "*points"]:
        """The offset of the centre line to the left of the wind's axis, at distances downwind."""
        steps_ago = jnp.clip(down / (self.speed * self.dt), 0, self.history - 1)
        newer = jnp.minimum(steps_ago.astype(jnp.int32), self.history - 2)
        older_share = steps_ago - newer
        earlier = (1 - older_share) * state.path[newer] + older_share * state.path[newer + 1]
        return state.path[0] - earlier
