"""A static Gaussian field: C = exp(−r²/2σ²)."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from tropism.plume import checks
from tropism.plume.fields.field import Field
from tropism.plume.wind import Constant, Wind


class Gaussian(Field):
    """The wind, if any, does not move the odour. The state is the wind's: () for a constant wind."""

    source: Any = (64.0, 64.0)
    sigma: ArrayLike = 20.0  # length units
    flow: Wind = Constant()
    dt: ArrayLike = 1.0  # s, one step of the environment

    def __check_init__(self):
        checks.require_point(source=self.source)
        checks.require_positive(sigma=self.sigma, dt=self.dt)

    @classmethod
    def for_grid(cls, width: int, height: int) -> "Gaussian":
        """The field around the centre of a grid of unit cells."""
        return cls(source=(float(width // 2), float(height // 2)))

    @property
    def step_duration(self) -> Any:
        return None if isinstance(self.flow, Constant) else self.dt

    def init(self, key: Any) -> Any:
        return self.flow.init(key)

    def advance(self, key: Any, state: Any) -> Any:
        return self.flow.advance(key, state, self.dt)

    def concentration(self, state: Any, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        squared = (xy[..., 0] - self.source[0]) ** 2 + (xy[..., 1] - self.source[1]) ** 2
        return jnp.exp(-squared / (2 * self.sigma**2))

    def wind(self, state: Any, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        return jnp.broadcast_to(self.flow.velocity(state), xy.shape)
