"""Where an episode begins: anywhere outside the goal, in a zone, or at a point."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Bool, Float, UInt32

from tropism.plume import checks
from tropism.plume.scene import Agent, Arena, pair

FEW = 8  # points drawn at once; the first that is free and outside the goal is taken
MOST = 1024  # points drawn in all; where next to no place is free, the agent begins where it may not
GOLDEN = 0x9E3779B9  # odd, and about 2**32 over the golden ratio
MULTIPLIER = 0xADB4A92D  # of a generator whose high bits are good (Steele and Vigna 2022)
ONE = 0x3F800000  # the bits of 1.0

Point = tuple[Float[Array, ""], Float[Array, ""]]


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
        zone = _Zone(low[0], low[1], high[0], high[1])
        known = lax.stop_gradient((zone, arena, source, goal_radius))
        words = _words(key)
        heading = self._heading(words, low.dtype)
        words, found = _first_free(words, lambda words: _free(words, *known, on_grid), arena.obstacles is not None)
        drawn, rest = _point(words, zone, on_grid), zone.farthest(source, on_grid)
        x, y = (
            jnp.where(self.fixed != 0, fixed, jnp.where(found, new, corner))
            for fixed, new, corner in zip(pair(self.point), drawn, rest, strict=True)
        )
        return Agent(x, y, heading, jnp.zeros_like(x), jnp.zeros_like(y), jnp.zeros((), bool))

    def _heading(self, words: "_Words", dtype: Any) -> Float[Array, ""]:
        if self.heading is None:
            return (_unit(_mix(words.x + words.y * jnp.uint32(GOLDEN))) * 2 - 1).astype(dtype) * jnp.pi
        return jnp.deg2rad(jnp.asarray(self.heading, dtype))


class _Zone(NamedTuple):
    """Numbers, not pairs: a batch of numbers is read and written in one piece."""

    left: Float[Array, ""]
    bottom: Float[Array, ""]
    right: Float[Array, ""]
    top: Float[Array, ""]

    def farthest(self, source: Float[Array, " 2"], on_grid: bool) -> Point:
        """The corner that is farthest from the source."""
        low, high = _ends(self.left, self.right, on_grid), _ends(self.bottom, self.top, on_grid)
        x, y = (jnp.where(to - ends[0] > ends[1] - to, *ends) for to, ends in zip(source, (low, high), strict=True))
        return x, y


class _Words(NamedTuple):
    """What one candidate is made of."""

    x: UInt32[Array, ""]
    y: UInt32[Array, ""]

    def next(self) -> "_Words":
        return _Words(*(word * jnp.uint32(MULTIPLIER) + jnp.uint32(GOLDEN) for word in self))


def _words(key: Any) -> _Words:
    """Two words from a key, as good as random also for the keys of the seeds 0, 1, 2; cheaper than hashing again."""
    data = random.key_data(key).astype(jnp.uint32)
    word = data[0] + _mix(data[1] ^ jnp.uint32(GOLDEN))
    other = data[1] + _mix(word)
    return _Words(word + _mix(other), other)


def _first_free(words: _Words, free: Callable[[_Words], Any], patient: bool) -> tuple[_Words, Bool[Array, ""]]:
    """The words of the first candidate that is free, and whether one is; a patient search goes on to `MOST`.

    Without obstacles only the goal is in the way. Where it covers a share p of the zone, p**FEW of all starts find
    no place; a loop would find them one, and wait for the host at every step of an accelerator.
    """
    found, ahead = _look(words, free)
    if not patient:
        return found

    def again(carry: Any) -> Any:
        _, words, count = carry
        return *_look(words, free), count + FEW

    def go_on(carry: Any) -> Any:
        return ~carry[0][1] & (carry[2] < MOST)

    return lax.while_loop(go_on, again, (found, ahead, jnp.int32(FEW)))[0]


def _look(words: _Words, free: Callable[[_Words], Any]) -> tuple[tuple[_Words, Bool[Array, ""]], _Words]:
    """`(words of the first free of `FEW` candidates, whether one is), the words that come after them`."""
    candidates = [words]
    for _ in range(FEW):
        candidates.append(candidates[-1].next())
    *near, ahead = candidates
    chosen, found = near[0], jnp.zeros((), bool)
    for candidate in reversed(near):
        is_free = free(candidate)
        chosen = _Words(*(jnp.where(is_free, new, old) for new, old in zip(candidate, chosen, strict=True)))
        found = found | is_free
    return (chosen, found), ahead


def _free(words: _Words, zone: _Zone, arena: Arena, source: Any, goal_radius: Any, on_grid: bool) -> Bool[Array, ""]:
    x, y = _point(words, zone, on_grid)
    outside = (x - source[0]) ** 2 + (y - source[1]) ** 2 > goal_radius**2
    return outside if arena.obstacles is None else outside & ~arena.blocked(jnp.stack([x, y]))


def _point(words: _Words, zone: _Zone, on_grid: bool) -> Point:
    return _side(words.x, zone.left, zone.right, on_grid), _side(words.y, zone.bottom, zone.top, on_grid)


def _side(word: Any, low: Any, high: Any, on_grid: bool) -> Float[Array, ""]:
    if on_grid:
        first, last = _ends(low, high, on_grid)
        return first + jnp.floor(_unit(word) * (last - first + 1).astype(jnp.float32)).astype(low.dtype)
    return low + _unit(word).astype(low.dtype) * (high - low)


def _ends(low: Any, high: Any, on_grid: bool) -> tuple[Any, Any]:
    return (jnp.ceil(low), jnp.floor(high)) if on_grid else (low, high)


def _unit(word: Any) -> Float[Array, ""]:
    """A word as a number from 0 up to 1, in steps of 2**-23; its bits are those of a float from 1 up to 2."""
    return lax.bitcast_convert_type((word >> 9) | jnp.uint32(ONE), jnp.float32) - 1


def _mix(word: Any) -> Any:
    """A bijection of 32-bit words in which every bit of the input reaches every bit of the output."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    return word ^ (word >> 16)
