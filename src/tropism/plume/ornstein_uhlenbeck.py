"""Ornstein–Uhlenbeck processes and their time integrals, exact for any time step."""

from typing import Any

import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float

SMALL = 0.1  # ratio of time step to time constant below which a series is more accurate than the formula


def step(key: Any, value: Any, spread: Any, time_constant: Any, dt: Any) -> Any:
    """The value `dt` seconds later; `spread` is the stationary standard deviation."""
    return _next(random.normal(key, jnp.shape(value)), value, spread, time_constant, dt)


def step_and_integral(key: Any, value: Any, spread: Any, time_constant: Any, dt: Any) -> tuple[Any, Any]:
    """The value `dt` seconds later, and the integral of the process until then."""
    kick, deviation = random.normal(key, (2, *jnp.shape(value)))
    after = _next(kick, value, spread, time_constant, dt)
    return after, integral(deviation, value, after, spread, time_constant, dt)


def _next(kick: Any, value: Any, spread: Any, time_constant: Any, dt: Any) -> Any:
    decay = jnp.exp(-dt / time_constant)
    return decay * value + spread * jnp.sqrt(1 - decay**2) * kick


def path(key: Any, start: Any, spread: Any, time_constant: Any, dt: Any, num: int) -> Float[Array, " {num}"]:
    """`start` and the next `num - 1` values; the process is reversible, so they can be used as past values."""
    lag = jnp.arange(num)[:, None] - jnp.arange(num)
    weight = jnp.where(lag >= 0, jnp.exp(-jnp.maximum(lag, 0) * dt / time_constant), 0)
    kicks = spread * jnp.sqrt(1 - jnp.exp(-2 * dt / time_constant)) * random.normal(key, (num,))
    return weight @ kicks.at[0].set(start)


def integral(normal: Any, before: Any, after: Any, spread: Any, time_constant: Any, dt: Any) -> Any:
    """The integral of the process over a step with these values at its ends; `normal` is a standard normal draw.

    Given both ends it is normal, with mean τ·tanh(h/2)·(before + after) and variance 2σ²τ²·(h − 2·tanh(h/2)), where
    h = dt/τ.
    """
    ratio = jnp.asarray(dt / time_constant)
    half = jnp.tanh(ratio / 2)
    excess = jnp.where(ratio < SMALL, ratio**3 / 12 - ratio**5 / 120, ratio - 2 * half)
    deviation = spread * time_constant * jnp.sqrt(2 * excess)
    # In this order XLA and the native engine fuse the same products and sums, so that their last bits are equal.
    return time_constant * half * before + deviation * normal + time_constant * half * after
