"""Puffs released at random times, in a ring buffer of fixed size."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, Int


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
