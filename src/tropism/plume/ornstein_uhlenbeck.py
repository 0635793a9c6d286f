"""Ornstein–Uhlenbeck processes, exact for any time step."""

from typing import Any

import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float


def step(key: Any, value: Any, spread: Any, time_constant: Any, dt: Any) -> Any:
    """The value `dt` seconds later; `spread` is the stationary standard deviation."""
    decay = jnp.exp(-dt / time_constant)
    kick = random.normal(key, jnp.shape(value))
    return decay * value + spread * jnp.sqrt(1 - decay**2) * kick


def path(key: Any, start: Any, spread: Any, time_constant: Any, dt: Any, num: int) -> Float[Array, " {num}"]:
    """`start` and the next `num - 1` values; the process is reversible, so they can be used as past values."""
    lag = jnp.arange(num)[:, None] - jnp.arange(num)
    weight = jnp.where(lag >= 0, jnp.exp(-jnp.maximum(lag, 0) * dt / time_constant), 0)
    kicks = spread * jnp.sqrt(1 - jnp.exp(-2 * dt / time_constant)) * random.normal(key, (num,))
    return weight @ kicks.at[0].set(start)
