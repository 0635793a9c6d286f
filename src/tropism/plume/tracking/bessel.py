"""The modified Bessel function of the second kind, of order 0."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def bessel_k0(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """K0 of positive numbers, to the precision of their dtype.

    The integral of exp(-x cosh t) over t > 0 by the trapezoidal rule, which converges exponentially here. The
    integrand is negligible beyond the t where x (cosh t - 1) = `cutoff`. It needs only exponentials, and no branch.
    """
    cutoff, nodes = (20.0, 16) if x.dtype == jnp.float32 else (40.0, 32)
    limit = cutoff / x
    spacing = jnp.log1p(limit + jnp.sqrt(limit * (limit + 2))) / nodes
    first = 2 * jnp.sinh(spacing / 2) ** 2
    total, before, now = jnp.full_like(x, 0.5), jnp.zeros_like(x), first
    for _ in range(nodes):
        total = total + jnp.exp(-x * now)
        before, now = now, 2 * (now + first + first * now) - before  # cosh - 1 at the next multiple of the spacing
    return spacing * jnp.exp(-x) * total
