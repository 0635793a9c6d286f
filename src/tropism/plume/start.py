"""Where an episode begins: anywhere outside the goal, in a zone, or at a point."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Bool, Float

from tropism.plume.scene import Agent, Arena

CANDIDATES = 8  # points drawn for one start; the first that is free and outside the goal is taken
GOLDEN = 0x9E3779B9  # odd, and about 2**32 over the golden ratio: spreads a counter over all words


class Start(eqx.Module):
    """Uniform between `low` and `high`, outside the goal and obstacles; or at `point` where `fixed` is 1.

    None for `low` or `high` is the arena's own corner. `heading` (degrees) is drawn from the full circle
    where it is None.
    """

    low: Any = None
    high: Any = None
    fixed: Any = 0
    point: Any = (0.0, 0.0)
    heading: Any = None

    def place(self, key: Any, arena: Arena, source: Float[Array, " 2"], goal_radius: Any, on_grid: bool) -> Agent:
        low = jnp.stack(arena.low if self.low is None else self.low)
        high = jnp.stack(arena.high if self.high is None else self.high)
        # A key is the output of a hash: two random words, enough for a point, without hashing again.
        words = random.key_data(key).astype(jnp.uint32)[:2]
        points = _points(_candidates(words), low, high, on_grid)
        free = _free(points, arena, source, goal_radius)
        drawn = jnp.where(free.any(), points[jnp.argmax(free)], _farthest(arena, source))
        xy = jnp.where(self.fixed, jnp.stack(self.point), drawn).astype(low.dtype)
        return Agent(xy, self._heading(words, xy.dtype), jnp.zeros_like(xy), jnp.zeros((), bool))

    def _heading(self, words: Any, dtype: Any) -> Float[Array, ""]:
        if self.heading is None:
            return (_unit(_mix(words[0] ^ _mix(words[1]))) * 2 - 1).astype(dtype) * jnp.pi
        return jnp.deg2rad(jnp.asarray(self.heading, dtype))


def _candidates(words: Any) -> Any:
    """Several pairs of words from one."""
    number = jnp.arange(CANDIDATES, dtype=jnp.uint32)[:, None]
    return jnp.where(number == 0, words, _mix(words + number * jnp.uint32(GOLDEN)))


def _points(words: Any, low: Any, high: Any, on_grid: bool) -> Float[Array, "candidates 2"]:
    if on_grid:
        first, last = jnp.ceil(low), jnp.floor(high)
        return first + (words % (last - first + 1).astype(jnp.uint32)).astype(low.dtype)
    return low + _unit(words).astype(low.dtype) * (high - low)


def _free(points: Any, arena: Arena, source: Any, goal_radius: Any) -> Bool[Array, " candidates"]:
    outside = jnp.sum((points - source) ** 2, -1) > goal_radius**2
    return outside & ~arena.blocked(points)


def _farthest(arena: Arena, source: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """The corner farthest from the source: outside any goal that leaves room to start at all."""
    low, high = jnp.stack(arena.low), jnp.stack(arena.high)
    return jnp.where(source - low > high - source, low, high)


def _unit(words: Any) -> Float[Array, "..."]:
    """Words as numbers from 0 up to 1, in steps of 2**-24."""
    return (words >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def _mix(word: Any) -> Any:
    """A bijection of 32-bit words in which every bit of the input reaches every bit of the output."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    return word ^ (word >> 16)
