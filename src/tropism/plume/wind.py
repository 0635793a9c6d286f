"""Uniform winds: constant, switching, wandering."""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, ArrayLike, Float, Int

from tropism.plume import checks, ornstein_uhlenbeck


class Wind(eqx.Module):
    """Abstract. The velocity of the air, one for the whole arena, changing with time."""

    @abstractmethod
    def init(self, key: Any) -> Any: ...

    @abstractmethod
    def advance(self, key: Any, state: Any, dt: Any) -> Any:
        """The state `dt` seconds later."""

    @abstractmethod
    def velocity(self, state: Any) -> Float[Array, " 2"]: ...

    def past(self, key: Any, state: Any, dt: Any, num: int) -> Float[Array, "{num} 2"]:
        """The velocities 0, 1, … steps of `dt` before an episode that starts in `state`, for a developed
        plume. By default the wind was constant before the start."""
        return jnp.broadcast_to(self.velocity(state), (num, 2))


def _pair(xy: Any) -> Any:
    return tuple(xy) if isinstance(xy, list | np.ndarray) else xy


class Constant(Wind):
    """Constant velocity `xy`."""

    xy: Any = eqx.field(default=(0.0, 0.0), converter=_pair)

    def __check_init__(self):
        checks.require_point(xy=self.xy)

    def init(self, key: Any) -> tuple[()]:
        return ()

    def advance(self, key: Any, state: tuple[()], dt: Any) -> tuple[()]:
        return ()

    def velocity(self, state: tuple[()]) -> Float[Array, " 2"]:
        return jnp.asarray(self.xy, float)


class SwitchingState(eqx.Module):
    elapsed: Float[Array, ""]  # s
    switches: Int[Array, ""]
    due: Float[Array, ""]  # s, time of the next switch
    angle: Float[Array, ""]  # rad, from the mean direction


class Switching(Wind):
    """Constant speed; about every `interval` the direction switches to a new random angle around the mean direction.

    `once` and `many` are the regimes of Singh et al. 2023 (doi:10.1038/s42256-022-00599-w). The first direction
    is the mean one.
    """

    speed: ArrayLike = 0.5  # m/s
    direction: ArrayLike = 0.0  # rad, the mean; 0 is +x, counter-clockwise is positive
    interval: ArrayLike = 3.0  # s
    jitter: ArrayLike = 0.3  # s, maximum deviation from the interval, uniform
    turn: ArrayLike = 0.0  # rad, mean of the angle after a switch
    spread: ArrayLike = math.pi / 6  # rad, its standard deviation
    limit: ArrayLike = math.pi / 3  # rad, the largest angle from the mean direction

    def __check_init__(self):
        checks.require_non_negative(speed=self.speed, jitter=self.jitter, spread=self.spread, limit=self.limit)
        checks.require_positive(interval=self.interval)
        checks.require_finite(direction=self.direction, turn=self.turn)

    @classmethod
    def once(cls, speed: Any = 0.5, at: Any = 60.0, turn: Any = math.pi / 4) -> "Switching":
        """Turns by 45° after a minute; every later switch is to the same angle."""
        return cls(speed, interval=at, jitter=0.0, turn=turn, spread=0.0)

    @classmethod
    def many(cls, speed: Any = 0.5) -> "Switching":
        """Turns every 3 ± 0.3 s by N(0, 30°), clipped to ±60°."""
        return cls(speed)

    def init(self, key: Any) -> SwitchingState:
        zero = jnp.zeros((), jnp.result_type(float))
        count = jnp.zeros((), jnp.int32)
        return SwitchingState(zero, count, self._due(key, count), zero)

    def advance(self, key: Any, state: SwitchingState, dt: Any) -> SwitchingState:
        angle_key, due_key = random.split(key)
        elapsed = state.elapsed + dt
        switch = elapsed >= state.due
        limit = jnp.asarray(self.limit)
        drawn = jnp.clip(self.turn + self.spread * random.normal(angle_key), -limit, limit)
        count = state.switches + switch
        due = jnp.where(switch, self._due(due_key, count), state.due)
        return SwitchingState(elapsed, count, due, jnp.where(switch, drawn, state.angle))

    def velocity(self, state: SwitchingState) -> Float[Array, " 2"]:
        return polar(self.speed, self.direction + state.angle)

    def _due(self, key: Any, count: Any) -> Any:
        return (count + 1) * self.interval + self.jitter * random.uniform(key, minval=-1.0)


class Wandering(Wind):
    """Constant speed; the direction is an Ornstein–Uhlenbeck process around its mean."""

    speed: ArrayLike = 0.5  # m/s
    direction: ArrayLike = 0.0  # rad, the mean; 0 is +x, counter-clockwise is positive
    spread: ArrayLike = math.pi / 12  # rad, standard deviation
    time_constant: ArrayLike = 5.0  # s

    def __check_init__(self):
        checks.require_non_negative(speed=self.speed, spread=self.spread)
        checks.require_positive(time_constant=self.time_constant)
        checks.require_finite(direction=self.direction)

    def init(self, key: Any) -> Float[Array, ""]:
        return jnp.asarray(self.spread) * random.normal(key)

    def advance(self, key: Any, state: Float[Array, ""], dt: Any) -> Float[Array, ""]:
        return ornstein_uhlenbeck.step(key, state, self.spread, self.time_constant, dt)

    def velocity(self, state: Float[Array, ""]) -> Float[Array, " 2"]:
        return polar(self.speed, self.direction + state)

    def past(self, key: Any, state: Float[Array, ""], dt: Any, num: int) -> Float[Array, "{num} 2"]:
        angles = ornstein_uhlenbeck.path(key, state, self.spread, self.time_constant, dt, num)
        return polar(self.speed, self.direction + angles)


def polar(speed: Any, angle: Any) -> Float[Array, "*angles 2"]:
    return speed * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)
