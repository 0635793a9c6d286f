"""Steering: the action that takes a body of some kind towards a heading.

Headings are in radians, 0 along +x and growing to the left. A body with a compass (`Cardinal`, `Compass`) names the
direction it goes. A body without one (`Oriented`, `Continuous`) only turns, and counts its turns from the start:
its headings are relative to the first.
"""

from typing import Any

import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float

from tropism.errors import ValidationError
from tropism.plume.motion import Cardinal, Compass, Continuous, Motion, Oriented

Steerable = Cardinal | Compass | Oriented | Continuous


def check_steerable(motion: Any) -> None:
    if not isinstance(motion, Steerable):
        raise ValidationError("motion", motion, "a Cardinal, Compass, Oriented or Continuous motion")


def has_compass(motion: Motion) -> bool:
    """Whether the agent's headings are those of the world; else they are relative to its first."""
    return isinstance(motion, Cardinal | Compass)


def steer(motion: Motion, facing: Float[Array, "..."], wanted: Float[Array, "..."]) -> tuple[Any, Float[Array, "..."]]:
    """`(action, facing)`: the action that goes towards `wanted`, and the heading after it."""
    match motion:
        case Cardinal():
            return _nearest(wanted, 4), wanted
        case Compass():
            return 1 + _nearest(wanted, 8), wanted
        case Oriented():
            return _turn_or_go(motion, facing, wanted)
        case Continuous():
            return _fly(motion, facing, wanted)
        case _:
            raise ValidationError("motion", motion, "a motion that can be steered")


def any_heading(key: Any) -> Float[Array, ""]:
    return random.uniform(key, (), minval=-jnp.pi, maxval=jnp.pi)


def _nearest(heading: Float[Array, "..."], count: int) -> Any:
    """Which of `count` directions, clockwise from up."""
    return jnp.round((jnp.pi / 2 - heading) / (2 * jnp.pi / count)).astype(jnp.int32) % count


def _turn_or_go(motion: Oriented, facing: Any, wanted: Any) -> tuple[Any, Any]:
    turn = jnp.deg2rad(jnp.asarray(motion.turn, facing.dtype))
    off = _difference(wanted, facing)
    side = jnp.where(jnp.abs(off) > turn / 2, jnp.sign(off), 0)
    return jnp.where(side > 0, 1, jnp.where(side < 0, 2, 0)), facing + side * turn


def _fly(motion: Continuous, facing: Any, wanted: Any) -> tuple[Any, Any]:
    """At full speed; the turn takes several steps where it is sharp."""
    most = motion.turn_rate * motion.dt
    share = jnp.clip(_difference(wanted, facing) / most, -1, 1)
    return jnp.stack([share, jnp.ones_like(share)]).astype(jnp.float32), facing + share * most


def _difference(angle: Any, other: Any) -> Any:
    return jnp.mod(angle - other + jnp.pi, 2 * jnp.pi) - jnp.pi
