"""Where an episode begins: anywhere outside the goal, in a zone, or at a point."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Bool, Float, Int, UInt32

from tropism.plume import checks
from tropism.plume.scene import Agent, Arena, pair

CANDIDATES = 4  # points drawn at once; the first that is free and outside the goal is taken
FEW = 16  # of them where only the goal is in the way
MOST = 1024  # points drawn in all; where next to no place is free, the agent begins where it may not
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

    def __check_init__(self) -> None:
        zone = {name: value for name, value in (("low", self.low), ("high", self.high)) if value is not None}
        checks.point(point=self.point, **zone)
        if self.heading is not None:
            checks.finite(heading=self.heading)

    def place(self, key: Any, arena: Arena, source: Float[Array, " 2"], goal_radius: Any, on_grid: bool) -> Agent:
        low = pair(arena.low if self.low is None else self.low)
        high = pair(arena.high if self.high is None else self.high)
        words = _words(key)

        def free(number: Any) -> Bool[Array, "..."]:
            points = _point(words, number, *lax.stop_gradient((low, high)), on_grid)
            return _free(points, *lax.stop_gradient((arena, source, goal_radius)))

        number = _first(free) if arena.obstacles is not None else _first_of_few(free)
        corners = (jnp.ceil(low), jnp.floor(high)) if on_grid else (low, high)
        drawn = jnp.where(number < 0, _farthest(*corners, source), _point(words, number, low, high, on_grid))
        xy = jnp.where(self.fixed != 0, pair(self.point), drawn)
        return Agent.at(xy, self._heading(words, xy.dtype), jnp.zeros_like(xy), jnp.zeros((), bool))

    def _heading(self, words: Any, dtype: Any) -> Float[Array, ""]:
        if self.heading is None:
            return (_unit(_mix(words[0] ^ _mix(words[1]))) * 2 - 1).astype(dtype) * jnp.pi
        return jnp.deg2rad(jnp.asarray(self.heading, dtype))


def _words(key: Any) -> UInt32[Array, " 2"]:
    """Two words from a key, as good as random also for the keys of the seeds 0, 1, 2; cheaper than hashing again."""
    word, other = random.key_data(key).astype(jnp.uint32)[:2]
    return jnp.stack([_mix(word + _mix(other ^ jnp.uint32(GOLDEN))), _mix(other + _mix(word))])


def _first_of_few(free: Callable[[Any], Any]) -> Int[Array, ""]:
    """The first of `FEW` numbers for which `free` holds, else −1: no loop, which would wait for the host.

    Only the goal is in the way here. Where it covers a share p of the zone, p**FEW of all starts find no place.
    """
    first = jnp.int32(-1)
    for number in reversed(range(FEW)):
        first = jnp.where(free(jnp.int32(number)), number, first)
    return first


def _farthest(low: Any, high: Any, source: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """The corner of the zone that is farthest from the source."""
    return jnp.where(source - low > high - source, low, high)


def _first(free: Callable[[Any], Any]) -> Int[Array, ""]:
    """The first number from 0 for which `free` holds; looks at several at once, and at most at `MOST`."""

    def look(start: Any) -> tuple[Any, Any]:
        found = free(start + jnp.arange(CANDIDATES, dtype=jnp.int32))
        return start + jnp.argmax(found).astype(jnp.int32), found.any()

    def again(carry: Any) -> Any:
        start = carry[2] + CANDIDATES
        return *look(start), start

    def go_on(carry: Any) -> Any:
        return ~carry[1] & (carry[2] < MOST)

    first = jnp.int32(0)
    return lax.while_loop(go_on, again, (*look(first), first))[0]


def _point(words: Any, number: Int[Array, "*n"], low: Any, high: Any, on_grid: bool) -> Float[Array, "*n 2"]:
    """The candidate of a number."""
    words = _mix(words + number[..., None].astype(jnp.uint32) * jnp.uint32(GOLDEN))
    if on_grid:
        first, last = jnp.ceil(low), jnp.floor(high)
        return first + (words % (last - first + 1).astype(jnp.uint32)).astype(low.dtype)
    return low + _unit(words).astype(low.dtype) * (high - low)


def _free(points: Float[Array, "*n 2"], arena: Arena, source: Any, goal_radius: Any) -> Bool[Array, "*n"]:
    away = points - source
    outside = away[..., 0] ** 2 + away[..., 1] ** 2 > goal_radius**2
    return outside & ~arena.blocked(points)


def _unit(words: Any) -> Float[Array, "..."]:
    """Words as numbers from 0 up to 1, in steps of 2**-24."""
    return (words >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def _mix(word: Any) -> Any:
    """A bijection of 32-bit words in which every bit of the input reaches every bit of the output."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    return word ^ (word >> 16)
