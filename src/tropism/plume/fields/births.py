"""Puffs born at random times, in a buffer of fixed size where the newest take the places of the oldest."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, Int


class Births(eqx.Module):
    """The births of one step: the first `count` entries, in the order they were born."""

    count: Int[Array, ""]
    wait: Float[Array, " most"]  # s, from the start of the step


def draw(key: Any, rate: Any, duration: Any, most: int) -> Births:
    """A Poisson process of `rate` per second; a step in which more than `most` were due drops the last."""
    wait = _times(key, rate, most)
    return Births((wait < duration).sum(dtype=jnp.int32), wait)


def ages(key: Any, rate: Any, num: int) -> Float[Array, " {num}"]:
    """Seconds since the latest `num` births of a process that has always been going on, oldest first."""
    return jnp.flip(_times(key, rate, num))


def places(births: Births, oldest: Int[Array, ""], size: int) -> Int[Array, " most"]:
    """Where in a buffer of `size` the births go; those that are none go to `size`, which is nowhere."""
    order = jnp.arange(births.wait.size)
    return jnp.where(order < births.count, (oldest + order) % size, size)


def _times(key: Any, rate: Any, num: int) -> Float[Array, " {num}"]:
    going_on = jnp.asarray(rate) > 0
    return jnp.where(going_on, jnp.cumsum(random.exponential(key, (num,))) / jnp.where(going_on, rate, 1), jnp.inf)
