"""A concentration field: how strong the smell is at a point, and how that changes with time."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Field(eqx.Module):
    """Abstract. Numbers are pytree leaves, so they vmap; what changes a shape is a static field.

    `source` is where the smell comes from, (x, y) in the field's own length unit; +y is up. `advance` moves
    the field on by one step of the environment. Points are arrays whose last axis is (x, y): one point or
    any number of them.
    """

    source: eqx.AbstractVar[Any]

    @abstractmethod
    def init(self, key: Any) -> Any:
        """The state at the start of an episode; a static field has an empty one, ()."""

    @abstractmethod
    def advance(self, key: Any, state: Any) -> Any:
        """The state one step later."""

    @abstractmethod
    def concentration(self, state: Any, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]: ...

    @abstractmethod
    def wind(self, state: Any, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        """The velocity of the air, in length units a second."""

    def raster(self, state: Any, x: Float[Array, " width"], y: Float[Array, " height"]) -> Float[Array, "height width"]:
        """The concentration at each (x, y), for a picture: a field that has a quicker way may round otherwise there."""
        return self.concentration(state, jnp.stack(jnp.broadcast_arrays(x[None, :], y[:, None]), -1))

    def moved(self, source: Any) -> "Field":
        """The same field with its source elsewhere."""
        return replace(self, source=source)
