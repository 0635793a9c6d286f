"""Steering: the action that turns an agent towards a heading, for each motion.

Headings are in radians, 0 along +x, positive to the left. Motions with a compass (`Cardinal`, `Compass`) have
absolute headings. The others (`Oriented`, `Continuous`) only turn, and their headings are relative to the first one.
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
    """Whether headings are absolute; otherwise they are relative to the first one."""
    return isinstance(motion, Cardinal | Compass)


def steer(
    motion: Motion, heading: Float[Array, "..."], target_heading: Float[Array, "..."]
) -> tuple[Any, Float[Array, "..."]]:
    """`(action, heading)`: the action that turns towards `target_heading`, and the heading after it."""
    match motion:
        case Cardinal():
            return _nearest(target_heading, 4), target_heading
        case Compass():
            return 1 + _nearest(target_heading, 8), target_heading
        case Oriented():
            return _turn_or_move(motion, heading, target_heading)
        case Continuous():
            return _fly(motion, heading, target_heading)
        case _:
            raise ValidationError("motion", motion, "a motion that can be steered")


def speed_after(motion: Motion, action: Any, before: Float[Array, "..."]) -> Float[Array, "..."]:
    """The speed relative to the air after an action; unchanged for motions in which it is not an action."""
    return action[1] * motion.speed if isinstance(motion, Continuous) else before


def random_heading(key: Any) -> Float[Array, ""]:
    return random.uniform(key, (), minval=-jnp.pi, maxval=jnp.pi)


def _nearest(heading: Float[Array, "..."], count: int) -> Any:
    """The index of the nearest of `count` directions, clockwise from up."""
    return jnp.round((jnp.pi / 2 - heading) / (2 * jnp.pi / count)).astype(jnp.int32) % count


def _turn_or_move(motion: Oriented, heading: Any, target_heading: Any) -> tuple[Any, Any]:
    turn = jnp.deg2rad(jnp.asarray(motion.turn, heading.dtype))
    difference = _angle_between(target_heading, heading)
    side = jnp.where(jnp.abs(difference) > turn / 2, jnp.sign(difference), 0)
    return jnp.where(side > 0, 1, jnp.where(side < 0, 2, 0)), heading + side * turn


def _fly(motion: Continuous, heading: Any, target_heading: Any) -> tuple[Any, Any]:
    """At full speed; a sharp turn takes several steps."""
    max_turn = motion.turn_rate * motion.dt
    fraction = jnp.clip(_angle_between(target_heading, heading) / max_turn, -1, 1)
    return jnp.stack([fraction, jnp.ones_like(fraction)]).astype(jnp.float32), heading + fraction * max_turn


def _angle_between(angle: Any, other: Any) -> Any:
    return jnp.mod(angle - other + jnp.pi, 2 * jnp.pi) - jnp.pi
