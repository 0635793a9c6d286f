"""Uniform winds: constant, switching once or many times, wandering."""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
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

    @abstractmethod
    def past(self, key: Any, state: Any, dt: Any, num: int) -> Float[Array, "{num} 2"]:
        """The velocities 0, 1, … steps of `dt` before an episode that starts in `state`, for a developed plume."""

    @abstractmethod
    def mean(self) -> Float[Array, " 2"]:
        """The velocity averaged over a long time."""


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

    def past(self, key: Any, state: tuple[()], dt: Any, num: int) -> Float[Array, "{num} 2"]:
        return jnp.broadcast_to(self.velocity(state), (num, 2))

    def mean(self) -> Float[Array, " 2"]:
        return self.velocity(())


class SwitchOnce(Wind):
    """Constant speed; the direction turns once, between `earliest` and `latest` seconds after the start.

    In Singh et al. 2023 (doi:10.1038/s42256-022-00599-w) the wind turns after 60 s and episodes start at 58 to 59 s.
    """

    speed: ArrayLike = 0.5  # m/s
    direction: ArrayLike = 0.0  # rad, before the turn; 0 is +x, counter-clockwise is positive
    turn: ArrayLike = math.pi / 4  # rad
    earliest: ArrayLike = 1.0  # s; a negative time is before the start
    latest: ArrayLike = 2.0  # s

    def __check_init__(self):
        checks.require_non_negative(speed=self.speed)
        times = {"earliest": self.earliest, "latest": self.latest}
        checks.require_finite(direction=self.direction, turn=self.turn, **times)

    def init(self, key: Any) -> Float[Array, ""]:
        """The seconds until the turn."""
        earliest, latest = jnp.asarray(self.earliest), jnp.asarray(self.latest)
        return earliest + (latest - earliest) * random.uniform(key)

    def advance(self, key: Any, state: Float[Array, ""], dt: Any) -> Float[Array, ""]:
        return state - dt

    def velocity(self, state: Float[Array, "*times"]) -> Float[Array, "*times 2"]:
        return polar(self.speed, self.direction + jnp.where(state > 0, 0, self.turn))

    def past(self, key: Any, state: Float[Array, ""], dt: Any, num: int) -> Float[Array, "{num} 2"]:
        return self.velocity(state + dt * jnp.arange(num))

    def mean(self) -> Float[Array, " 2"]:
        """Before the turn."""
        return polar(self.speed, jnp.asarray(self.direction, float))


class SwitchingState(eqx.Module):
    elapsed: Float[Array, ""]  # s
    switches: Int[Array, ""]  # number of the last switch; switch n is at about n · interval
    due: Float[Array, ""]  # s, time of the next switch
    angle: Float[Array, ""]  # rad, from the mean direction


class Switching(Wind):
    """Constant speed; about every `interval` the direction switches to a new random angle around the mean direction.

    The defaults are the third regime of Singh et al. 2023 (doi:10.1038/s42256-022-00599-w): every 3 ± 0.3 s by
    N(0, 30°), clipped to ±60°. The wind has been switching for a long time when an episode starts.
    """

    speed: ArrayLike = 0.5  # m/s
    direction: ArrayLike = 0.0  # rad, the mean; 0 is +x, counter-clockwise is positive
    interval: ArrayLike = 3.0  # s
    jitter: ArrayLike = 0.3  # s, maximum deviation from the interval, uniform; at most half of it
    spread: ArrayLike = math.pi / 6  # rad, standard deviation of the angle after a switch
    limit: ArrayLike = math.pi / 3  # rad, the largest angle from the mean direction

    def __check_init__(self):
        checks.require_non_negative(speed=self.speed, jitter=self.jitter, spread=self.spread, limit=self.limit)
        checks.require_positive(interval=self.interval)
        checks.require_finite(direction=self.direction)
        if all(isinstance(number, int | float) for number in (self.jitter, self.interval)):
            checks.require_inside((0, 0), (self.interval / 2, 0), jitter=(self.jitter, 0))

    def init(self, key: Any) -> SwitchingState:
        """At a uniformly distributed time of the process."""
        time_key, due_key, later_key, angle_key = random.split(key, 4)
        elapsed = jnp.asarray(self.jitter + self.interval * random.uniform(time_key))  # so that switch 0 is over
        due, zero = self._time(due_key, 1), jnp.zeros((), jnp.int32)
        later = SwitchingState(elapsed, zero + 1, self._time(later_key, 2), self._angle(angle_key))
        earlier = SwitchingState(elapsed, zero, due, later.angle)
        return jax.tree.map(lambda *values: jnp.where(elapsed >= due, *values), later, earlier)

    def advance(self, key: Any, state: SwitchingState, dt: Any) -> SwitchingState:
        angle_key, due_key = random.split(key)
        elapsed = state.elapsed + dt
        switch = elapsed >= state.due
        count = state.switches + switch
        due = jnp.where(switch, self._time(due_key, count + 1), state.due)
        return SwitchingState(elapsed, count, due, jnp.where(switch, self._angle(angle_key), state.angle))

    def velocity(self, state: SwitchingState) -> Float[Array, " 2"]:
        return polar(self.speed, self.direction + state.angle)

    def past(self, key: Any, state: SwitchingState, dt: Any, num: int) -> Float[Array, "{num} 2"]:
        last_key, times_key, angles_key = random.split(key, 3)
        last = state.switches * self.interval
        latest = jnp.minimum(state.elapsed - last, self.jitter)  # the last switch is over
        last_time = last - self.jitter + (latest + self.jitter) * random.uniform(last_key)

        def angle_at(time: Any) -> Any:
            number = jnp.floor(time / self.interval + 0.5).astype(jnp.int32)
            nearest = self._time(random.fold_in(times_key, number.astype(jnp.uint32)), number)
            number = jnp.where(time >= nearest, number, number - 1)
            before_last = jnp.where(number >= state.switches, state.switches - 1, number)
            angle = self._angle(random.fold_in(angles_key, before_last.astype(jnp.uint32)))
            return jnp.where(time >= last_time, state.angle, angle)

        angles = jax.vmap(angle_at)(state.elapsed - dt * jnp.arange(num))
        return polar(self.speed, self.direction + angles)

    def mean(self) -> Float[Array, " 2"]:
        return polar(self.speed * jnp.exp(-jnp.square(self.spread) / 2), jnp.asarray(self.direction, float))

    def _time(self, key: Any, number: Any) -> Any:
        """The time of a switch."""
        return number * self.interval + self.jitter * random.uniform(key, minval=-1.0)

    def _angle(self, key: Any) -> Any:
        limit = jnp.asarray(self.limit)
        return jnp.clip(self.spread * random.normal(key), -limit, limit)


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

    def mean(self) -> Float[Array, " 2"]:
        return polar(self.speed * jnp.exp(-jnp.square(self.spread) / 2), jnp.asarray(self.direction, float))


def polar(speed: Any, angle: Any) -> Float[Array, "*angles 2"]:
    return speed * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)
