"""The scene of a search: the agent, the arena and the concentration field."""

from hashlib import blake2b
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from tropism.errors import ValidationError
from tropism.plume.fields.field import Field


class Mask:
    """A fixed boolean array, hashed by content."""

    def __init__(self, array: Any, shape: tuple[int, int]):
        self.array = np.array(array)
        if self.array.shape != shape or self.array.dtype != bool:
            found = f"{self.array.dtype} {self.array.shape}"
            raise ValidationError("obstacles", found, f"a boolean array of shape {shape}, (height, width)")
        self.array.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return hash(blake2b(self.array.tobytes(), digest_size=8).digest())


class AgentPose(eqx.Module):
    """Position, heading and last displacement of an agent. `heading` is in radians, 0 along +x, positive to the left.

    Points are stored as two numbers: a batch of numbers is contiguous in memory, a batch of pairs is not.
    """

    x: Float[Array, ""]
    y: Float[Array, ""]
    heading: Float[Array, ""]
    moved_x: Float[Array, ""]  # over the last step
    moved_y: Float[Array, ""]
    absorbed: Bool[Array, ""]  # whether it has left an arena whose boundary absorbs

    @classmethod
    def at(cls, xy: Float[Array, " 2"], heading: Any, velocity: Float[Array, " 2"], absorbed: Any) -> "AgentPose":
        return cls(xy[0], xy[1], heading, velocity[0], velocity[1], absorbed)

    @property
    def xy(self) -> Float[Array, "*agents 2"]:
        return jnp.stack([self.x, self.y], -1)

    @property
    def velocity(self) -> Float[Array, "*agents 2"]:
        """Over the last step, length units a step."""
        return jnp.stack([self.moved_x, self.moved_y], -1)


class Arena(eqx.Module):
    """The rectangle between `low` and `high`, inclusive, with a raster of `shape` points."""

    low: Any
    high: Any
    obstacles: Bool[Array, "height width"] | None
    shape: tuple[int, int] = eqx.field(static=True)  # (height, width)

    def raster(self) -> Float[Array, "height width 2"]:
        """The points of the raster; row 0 is the lowest y."""
        x, y = self.axes()
        return jnp.stack(jnp.broadcast_arrays(x[None, :], y[:, None]), -1)

    def axes(self) -> tuple[Float[Array, " width"], Float[Array, " height"]]:
        """The x of the raster's columns and the y of its rows."""
        height, width = self.shape
        return jnp.linspace(self.low[0], self.high[0], width), jnp.linspace(self.low[1], self.high[1], height)

    @property
    def cell_size(self) -> tuple[Any, Any]:
        """(width, height) of the cell around one raster point."""
        height, width = self.shape
        return (self.high[0] - self.low[0]) / (width - 1), (self.high[1] - self.low[1]) / (height - 1)

    def contains(self, xy: Float[Array, "*points 2"]) -> Bool[Array, "*points"]:
        x, y = xy[..., 0], xy[..., 1]
        return (x >= self.low[0]) & (x <= self.high[0]) & (y >= self.low[1]) & (y <= self.high[1])

    def is_blocked(self, xy: Float[Array, "*points 2"]) -> Bool[Array, "*points"]:
        """Whether there is an obstacle."""
        if self.obstacles is None:
            return jnp.zeros(xy.shape[:-1], bool)
        cell = self.cell(xy)
        return self.obstacles[cell[..., 1], cell[..., 0]]

    def cell(self, xy: Float[Array, "*points 2"]) -> Int[Array, "*points 2"]:
        """The nearest point of the raster, (column, row)."""
        low, high = pair(self.low), pair(self.high)
        last = jnp.array([self.shape[1] - 1, self.shape[0] - 1])
        return jnp.clip(jnp.round((xy - low) / (high - low) * last), 0, last).astype(jnp.int32)


class Scene(eqx.Module):
    """The input of sensors, motions and rewards."""

    agent: AgentPose
    arena: Arena
    field: Field
    field_state: Any

    def smell(self, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        """The concentration at any points; 0 in obstacles and outside the arena."""
        strength = self.field.concentration(self.field_state, xy)
        return jnp.where(self.arena.contains(xy) & ~self.arena.is_blocked(xy), strength, 0)

    def raster(self) -> Float[Array, "height width"]:
        """The concentration at the raster points, for a picture; row 0 is the lowest y."""
        strength = self.field.raster(self.field_state, *self.arena.axes())
        return strength if self.arena.obstacles is None else jnp.where(self.arena.obstacles, 0, strength)

    def wind(self, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        return self.field.wind(self.field_state, xy)

    @property
    def source(self) -> Float[Array, " 2"]:
        return pair(self.field.source_at(self.field_state))

    @property
    def distance(self) -> Float[Array, ""]:
        """From the agent to the source."""
        x, y = self.field.source_at(self.field_state)
        return jnp.sqrt((self.agent.x - x) ** 2 + (self.agent.y - y) ** 2)

    @property
    def stray(self) -> Float[Array, ""]:
        """From the agent's position before the last step to the nearest puff; 0 without puffs.

        The released code of Singh et al. 2023 measures it before it moves the agent."""
        x, y, alive = self.field.puffs(self.field_state)
        before_x, before_y = self.agent.x - self.agent.moved_x, self.agent.y - self.agent.moved_y
        squared = jnp.where(alive, (x - before_x) ** 2 + (y - before_y) ** 2, jnp.inf).min()
        return jnp.where(alive.any(), jnp.sqrt(squared), 0)


def direction(angle: Float[Array, "*angles"]) -> Float[Array, "*angles 2"]:
    """The unit vector at this angle."""
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1)


def pair(xy: Any) -> Float[Array, " 2"]:
    """A point given as two numbers or one array, as an array of the default float type."""
    return jnp.stack([jnp.asarray(xy[0], float), jnp.asarray(xy[1], float)])
