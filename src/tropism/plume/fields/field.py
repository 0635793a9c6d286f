"""A concentration field: the odour concentration at a point, changing with time."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Field(eqx.Module):
    """Abstract. Numbers are pytree leaves, so they can be vmapped; values that determine a shape are static fields.

    `source` is the position of the odour source, (x, y) in the field's length unit; +y is up. `advance` advances
    the field by one step of the environment. Points are arrays whose last axis is (x, y), with any leading axes.
    """

    source: eqx.AbstractVar[Any]

    @abstractmethod
    def init(self, key: Any) -> Any:
        """The state at the start of an episode; () for a static field."""

    @abstractmethod
    def advance(self, key: Any, state: Any) -> Any:
        """The state one step later."""

    @abstractmethod
    def concentration(self, state: Any, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]: ...

    @abstractmethod
    def wind(self, state: Any, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        """The velocity of the air, in length units a second."""

    def raster(self, state: Any, x: Float[Array, " width"], y: Float[Array, " height"]) -> Float[Array, "height width"]:
        """The concentration at each (x, y), for a picture. A field may use a faster method with other rounding."""
        return self.concentration(state, jnp.stack(jnp.broadcast_arrays(x[None, :], y[:, None]), -1))

    def with_source(self, source: Any) -> "Field":
        """The same field with its source at another point."""
        return replace(self, source=source)
