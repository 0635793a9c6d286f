"""A concentration field: the odour concentration at a point, changing with time."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Bool, Float

from tropism.errors import ValidationError


class Field(eqx.Module):
    """Abstract. Numbers are pytree leaves, so they can be vmapped; values that determine a shape are static fields.

    `source` is the position of the odour source, (x, y) in the field's length unit; +y is up. `advance` advances
    the field by one step of the environment. Points are arrays whose last axis is (x, y), with any leading axes.
    """

    source: eqx.AbstractVar[Any]
    wind_moves_odour: ClassVar[bool] = False  # then the wind is part of the field and cannot be a Python object

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

    @property
    def step_duration(self) -> Any:
        """Seconds per step of the environment; None if nothing in this field depends on it."""
        return None

    def puffs(self, state: Any) -> tuple[Float[Array, " n"], Float[Array, " n"], Bool[Array, " n"]]:
        """`(x, y, alive)` of the puffs, for a field that consists of puffs."""
        raise ValidationError("field", type(self).__name__, "a field of puffs")

    def source_at(self, state: Any) -> Any:
        """The position of the source in a state; `source`, unless it moves."""
        return self.source

    def check_arena(self, low: Any, high: Any) -> None:
        """Raise ValidationError if this field does not reach across an arena."""

    def with_source(self, source: Any) -> "Field":
        """The same field with its source at another point."""
        return replace(self, source=source)

    def with_wind(self, wind: Any) -> "Field":
        """The same field in another wind, if it has the field `flow`."""
        if all(part.name != "flow" for part in fields(self)):
            raise ValidationError("wind_field", wind, f"None: a {type(self).__name__} has its own wind")
        return replace(self, flow=wind)  # pyright: ignore[reportCallIssue]


def simulate(field: Field, keys: Any, num_steps: int, read: Callable[[Any], Any]) -> Any:
    """The results of `read` for all states of a field, stacked; `keys` are those of the first state and the steps."""
    start_key, steps_key = keys

    def step(state: Any, key: Any) -> tuple[Any, Any]:
        return field.advance(key, state), read(state)

    return lax.scan(step, field.init(start_key), random.split(steps_key, num_steps))[1]
