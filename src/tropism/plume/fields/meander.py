"""A Gaussian plume that widens downwind and whose centre line meanders."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, ArrayLike, Float

from tropism.plume import checks, ornstein_uhlenbeck
from tropism.plume.fields.field import Field
from tropism.plume.wind import polar

TINY = 1e-6  # length units; 0/0 at the source of a plume without an anchor


class Meander(Field):
    """C = σ0/σ(d) · exp(−(c − centre(d, t))²/2σ(d)²) at d downwind and c across, nothing upwind.

    σ(d) = σ0 + growth · d. The centre line is advected downwind from the source, where an
    Ornstein–Uhlenbeck process η displaces it; within about `anchor` of the source it is damped, so
    that the plume always starts at the source: centre(d, t) = d/(d + anchor) · η(t − d/speed).
    With `anchor = 0` the process acts at the source itself.

    The defaults suit an arena of 128 × 128 unit cells, one step per second: the source near the left edge,
    wind +x at 2 cells per second, σ from 2 cells at the source to about 10 at the far edge, excursions of
    8 cells with a correlation time of 15 s (30 cells downwind). The state is the history of η, newest
    first, one value per step; `history · dt · speed` must reach across the arena.
    """

    wind_moves_odour: ClassVar[bool] = True

    source: Any = (16.0, 64.0)
    direction: ArrayLike = 0.0  # rad, where the wind blows to; 0 is +x, counter-clockwise is positive
    speed: ArrayLike = 2.0  # length units/s
    sigma: ArrayLike = 2.0  # length units, σ0
    growth: ArrayLike = 0.07  # length units of σ per length unit downwind
    spread: ArrayLike = 8.0  # length units, standard deviation of η
    time_constant: ArrayLike = 15.0  # s, correlation time of η
    anchor: ArrayLike = 10.0  # length units
    dt: ArrayLike = 1.0  # s, one step of the environment
    history: int = eqx.field(static=True, default=96)

    def __check_init__(self):
        checks.require_point(source=self.source)
        checks.require_finite(direction=self.direction)
        checks.require_positive(speed=self.speed, sigma=self.sigma, time_constant=self.time_constant, dt=self.dt)
        checks.require_non_negative(growth=self.growth, spread=self.spread, anchor=self.anchor)
        checks.require_count(at_least=2, history=self.history)

    @classmethod
    def for_grid(cls, width: int, height: int) -> "Meander":
        """The field for a grid of unit cells; the source is near the left edge, with space downwind."""
        return cls(source=(float(width // 8), float(height // 2)))

    def init(self, key: Any) -> Float[Array, " {self.history}"]:
        start_key, path_key = random.split(key)
        start = self.spread * random.normal(start_key)
        return ornstein_uhlenbeck.path(path_key, start, self.spread, self.time_constant, self.dt, self.history)

    def advance(self, key: Any, state: Float[Array, " n"]) -> Float[Array, " n"]:
        newest = ornstein_uhlenbeck.step(key, state[0], self.spread, self.time_constant, self.dt)
        return jnp.concatenate([newest[None], state[:-1]])

    def concentration(self, state: Float[Array, " n"], xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        x, y = xy[..., 0] - self.source[0], xy[..., 1] - self.source[1]
        cos, sin = jnp.cos(self.direction), jnp.sin(self.direction)
        down, across = cos * x + sin * y, cos * y - sin * x
        width = self.sigma + self.growth * jnp.maximum(down, 0)
        shape = jnp.exp(-((across - self.centre(state, down)) ** 2) / (2 * width**2))
        return jnp.where(down >= 0, self.sigma / width * shape, 0)

    def wind(self, state: Any, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        return jnp.broadcast_to(polar(self.speed, self.direction), xy.shape)

    def centre(self, state: Float[Array, " n"], down: Float[Array, "*points"]) -> Float[Array, "*points"]:
        """The offset of the centre line to the left of the wind's axis, at distances downwind."""
        down = jnp.maximum(down, 0)
        steps_ago = jnp.clip(down / (self.speed * self.dt), 0, self.history - 1)
        newer = jnp.minimum(steps_ago.astype(jnp.int32), self.history - 2)
        older_share = steps_ago - newer
        process = (1 - older_share) * state[newer] + older_share * state[newer + 1]
        return process * (down + TINY) / (down + self.anchor + TINY)
