"""The start position of an episode: random outside the goal, random in a zone, or a fixed point."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Bool, Float, UInt32

from tropism.plume import checks
from tropism.plume.scene import AgentPose, Arena, pair

BATCH = 8  # points drawn at once; the first that is free and outside the goal is taken
MAX_CANDIDATES = 1024  # points drawn in all; if none is free, the agent starts at the corner farthest from the source
GOLDEN = 0x9E3779B9  # odd, and about 2**32 over the golden ratio
MULTIPLIER = 0xADB4A92D  # of a generator whose high bits are good (Steele and Vigna 2022)
ONE = 0x3F800000  # the bits of 1.0
PLACE = 4  # folded into the key of a reset; smaller numbers are those of other parts

Point = tuple[Float[Array, ""], Float[Array, ""]]


class Start(eqx.Module):
    """Uniform between `low` and `high`, outside the goal and obstacles; or at `point` if `fixed` is 1.

    `low` and `high` default to the arena's corners. `heading` (degrees) is drawn from the full circle
    if it is None.
    """

    needs_puffs: ClassVar[bool] = False

    low: Any = None
    high: Any = None
    fixed: Any = 0
    point: Any = (0.0, 0.0)
    heading: Any = None

    def __check_init__(self) -> None:
        zone = {name: value for name, value in (("low", self.low), ("high", self.high)) if value is not None}
        checks.require_point(point=self.point, **zone)
        if self.heading is not None:
            checks.require_finite(heading=self.heading)

    def place(
        self, key: Any, arena: Arena, source: Float[Array, " 2"], goal_radius: Any, on_grid: bool, puffs: Any = None
    ) -> AgentPose:
        """The agent; `puffs`, as `Field.puffs` returns them, are given if `needs_puffs`."""
        low = pair(arena.low if self.low is None else self.low)
        high = pair(arena.high if self.high is None else self.high)
        zone = _Zone(low[0], low[1], high[0], high[1])
        known = lax.stop_gradient((zone, arena, source, goal_radius))
        words = _words(key)
        heading = self._heading(words, low.dtype)
        words, found = _first_free(words, lambda words: _is_free(words, *known, on_grid), arena.obstacles is not None)
        drawn, fallback = _point(words, zone, on_grid), zone.farthest(source, on_grid)
        x, y = (
            jnp.where(self.fixed != 0, fixed, jnp.where(found, new, corner))
            for fixed, new, corner in zip(pair(self.point), drawn, fallback, strict=True)
        )
        return AgentPose(x, y, heading, jnp.zeros_like(x), jnp.zeros_like(y), jnp.zeros((), bool))

    def _heading(self, words: "_Words", dtype: Any) -> Float[Array, ""]:
        if self.heading is None:
            return (_to_unit_float(_mix(words.x + words.y * jnp.uint32(GOLDEN))) * 2 - 1).astype(dtype) * jnp.pi
        return jnp.deg2rad(jnp.asarray(self.heading, dtype))


class StartInPlume(Start):
    """Where the puffs are, as in the released code of Singh et al. 2023.

    A quantile of the puffs' x is drawn between `nearest` and `farthest`; the start is normal around it and around the
    median y of the puffs there. `variation` scales the deviations: the distance to the quantile 0.1 below, and the
    distance of the 5 % quantile of y, at most 1 m. `low` and `high` do not apply.
    """

    needs_puffs: ClassVar[bool] = True

    nearest: Any = 0.4
    farthest: Any = 0.8
    variation: Any = 1.0

    def __check_init__(self) -> None:
        checks.require_fraction(nearest=self.nearest, farthest=self.farthest)
        checks.require_non_negative(variation=self.variation)

    def place(
        self, key: Any, arena: Arena, source: Float[Array, " 2"], goal_radius: Any, on_grid: bool, puffs: Any = None
    ) -> AgentPose:
        x, y, alive = puffs
        quantile_key, x_key, y_key = random.split(random.fold_in(key, PLACE), 3)
        fraction = self.nearest + (self.farthest - self.nearest) * random.uniform(quantile_key)
        middle = quantile(x, alive, fraction)
        deviation = middle - quantile(x, alive, fraction - 0.1)
        near = alive & (jnp.abs(x - middle) <= deviation)
        centre = quantile(y, near, 0.5)
        width = jnp.minimum(1, centre - quantile(y, near, 0.05))
        drawn_x = middle + self.variation * deviation * random.normal(x_key)
        drawn_y = centre + self.variation * width * random.normal(y_key)
        drawn = jnp.clip(jnp.stack([drawn_x, drawn_y]), pair(arena.low), pair(arena.high))
        place = jnp.where(self.fixed != 0, pair(self.point), drawn)
        return AgentPose.at(place, self._heading(_words(key), place.dtype), jnp.zeros_like(place), jnp.zeros((), bool))


def quantile(values: Float[Array, " n"], among: Bool[Array, " n"], fraction: Any) -> Float[Array, ""]:
    """The quantile of some of the values, linear between two of them; 0 if there are none."""
    count = among.sum()
    ordered = jnp.sort(jnp.where(among, values, jnp.inf))
    position = jnp.clip(fraction, 0, 1) * jnp.maximum(count - 1, 0)
    lower = jnp.floor(position).astype(jnp.int32)
    share = position - lower
    upper = jnp.minimum(lower + 1, jnp.maximum(count - 1, 0))
    return jnp.where(count > 0, (1 - share) * ordered[lower] + share * ordered[upper], 0)


class _Zone(NamedTuple):
    """Numbers, not pairs: a batch of numbers is contiguous in memory."""

    left: Float[Array, ""]
    bottom: Float[Array, ""]
    right: Float[Array, ""]
    top: Float[Array, ""]

    def farthest(self, source: Float[Array, " 2"], on_grid: bool) -> Point:
        """The corner that is farthest from the source."""
        low, high = _bounds(self.left, self.right, on_grid), _bounds(self.bottom, self.top, on_grid)
        x, y = (jnp.where(to - ends[0] > ends[1] - to, *ends) for to, ends in zip(source, (low, high), strict=True))
        return x, y


class _Words(NamedTuple):
    """The random words of one candidate."""

    x: UInt32[Array, ""]
    y: UInt32[Array, ""]

    def next(self) -> "_Words":
        return _Words(*(word * jnp.uint32(MULTIPLIER) + jnp.uint32(GOLDEN) for word in self))


def _words(key: Any) -> _Words:
    """Two random words from a key, also for the similar keys of seeds 0, 1, 2; cheaper than another hash."""
    data = random.key_data(key).astype(jnp.uint32)
    word = data[0] + _mix(data[1] ^ jnp.uint32(GOLDEN))
    other = data[1] + _mix(word)
    return _Words(word + _mix(other), other)


def _first_free(words: _Words, free: Callable[[_Words], Any], exhaustive: bool) -> tuple[_Words, Bool[Array, ""]]:
    """The words of the first free candidate, and whether there is one; `exhaustive` tries up to `MAX_CANDIDATES`.

    Without obstacles only the goal is excluded. If it covers a fraction p of the zone, p**BATCH of all starts find
    no free candidate; a loop would find one, but synchronizes an accelerator with the host at every step.
    """
    found, rest = _try_candidates(words, free)
    if not exhaustive:
        return found

    def try_more(carry: Any) -> Any:
        _, words, count = carry
        return *_try_candidates(words, free), count + BATCH

    def not_found(carry: Any) -> Any:
        return ~carry[0][1] & (carry[2] < MAX_CANDIDATES)

    return lax.while_loop(not_found, try_more, (found, rest, jnp.int32(BATCH)))[0]


def _try_candidates(words: _Words, free: Callable[[_Words], Any]) -> tuple[tuple[_Words, Bool[Array, ""]], _Words]:
    """`(words of the first free of BATCH candidates, whether there is one), the next words`."""
    candidates = [words]
    for _ in range(BATCH):
        candidates.append(candidates[-1].next())
    *batch, rest = candidates
    chosen, found = batch[0], jnp.zeros((), bool)
    for candidate in reversed(batch):
        is_free = free(candidate)
        chosen = _Words(*(jnp.where(is_free, new, old) for new, old in zip(candidate, chosen, strict=True)))
        found = found | is_free
    return (chosen, found), rest


def _is_free(words: _Words, zone: _Zone, arena: Arena, source: Any, goal_radius: Any, on_grid: bool) -> Bool[Array, ""]:
    x, y = _point(words, zone, on_grid)
    outside = (x - source[0]) ** 2 + (y - source[1]) ** 2 > goal_radius**2
    return outside if arena.obstacles is None else outside & ~arena.is_blocked(jnp.stack([x, y]))


def _point(words: _Words, zone: _Zone, on_grid: bool) -> Point:
    return _coordinate(words.x, zone.left, zone.right, on_grid), _coordinate(words.y, zone.bottom, zone.top, on_grid)


def _coordinate(word: Any, low: Any, high: Any, on_grid: bool) -> Float[Array, ""]:
    if on_grid:
        first, last = _bounds(low, high, on_grid)
        return first + jnp.floor(_to_unit_float(word) * (last - first + 1).astype(jnp.float32)).astype(low.dtype)
    return low + _to_unit_float(word).astype(low.dtype) * (high - low)


def _bounds(low: Any, high: Any, on_grid: bool) -> tuple[Any, Any]:
    return (jnp.ceil(low), jnp.floor(high)) if on_grid else (low, high)


def _to_unit_float(word: Any) -> Float[Array, ""]:
    """A word as a number in [0, 1), in steps of 2**-23, from the bits of a float in [1, 2)."""
    return lax.bitcast_convert_type((word >> 9) | jnp.uint32(ONE), jnp.float32) - 1


def _mix(word: Any) -> Any:
    """A bijection of 32-bit words in which every input bit affects every output bit."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    return word ^ (word >> 16)
