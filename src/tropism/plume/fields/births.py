"""Puffs released at random times, in a ring buffer of fixed size."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Float, Int

from tropism.core.spaces.space import is_traced
from tropism.errors import ValidationError

MARGIN = 4.5  # standard deviations of the number of puffs for which a buffer has room
STILL = 1e-6  # length units/s; slower air does not move


class Births(eqx.Module):
    """The births of one step: the first `count` entries, in order of time."""

    count: Int[Array, ""]
    wait: Float[Array, " max_births"]  # s, from the start of the step


def draw(key: Any, rate: Any, duration: Any, max_births: int) -> Births:
    """A Poisson process of `rate` per second; births beyond `max_births` are dropped."""
    wait = _times(key, rate, max_births)
    return Births((wait < duration).sum(dtype=jnp.int32), wait)


def ages(key: Any, rate: Any, num: int) -> Float[Array, " {num}"]:
    """Seconds since the latest `num` births of a process in its steady state, oldest first."""
    return jnp.flip(_times(key, rate, num))


def slots(births: Births, oldest: Int[Array, ""], size: int) -> Int[Array, " max_births"]:
    """The buffer index of each birth; unused entries get `size`, which is out of range."""
    order = jnp.arange(births.wait.size)
    return jnp.where(order < births.count, (oldest + order) % size, size)


def _times(key: Any, rate: Any, num: int) -> Float[Array, " {num}"]:
    is_active = jnp.asarray(rate) > 0
    return jnp.where(is_active, jnp.cumsum(random.exponential(key, (num,))) / jnp.where(is_active, rate, 1), jnp.inf)


def capacity(rate: float, seconds: float) -> int:
    """The size of a buffer for all puffs younger than `seconds`."""
    mean = rate * seconds
    return math.ceil(mean + MARGIN * mean**0.5) + 1


def check_capacity(max_puffs: int, rate: Any, source: Any, mean_wind: Any, low: Any, high: Any) -> None:
    """Raise ValidationError if a plume is cut off inside the arena: its oldest puffs would be discarded there."""
    if is_traced(rate, mean_wind, *source):
        return
    seconds = crossing_time(source, np.asarray(mean_wind, float), low, high)
    if float(rate) * seconds > max_puffs:
        least = "more" if seconds == math.inf else f"at least {capacity(float(rate), seconds)}"
        reason = f"{float(rate):g} puffs are released per second and need {seconds:.3g} s to leave the arena"
        raise ValidationError("max_puffs", max_puffs, f"{least}: {reason}")


def crossing_time(source: Any, mean_wind: Any, low: Any, high: Any) -> float:
    """Seconds in which the mean wind carries a puff from the source out of a rectangle; infinite without wind."""
    sides = zip(mean_wind, source, low, high, strict=True)
    return min(((b if v > 0 else a) - at) / v if abs(v) > STILL else math.inf for v, at, a, b in sides)
