"""Network inputs: observations, optionally flattened and normalized by running statistics."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tropism.core.module import Module


def flatten_obs(obs: Any) -> Float[Array, " size"]:
    """Flatten an observation into one float vector."""
    leaves = [jnp.ravel(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(obs)]
    return jnp.concatenate(leaves) if len(leaves) > 1 else leaves[0]


def is_real(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


class InputStatistics(Module):
    """Running mean and variance of the float arrays in a pytree; other leaves are None."""

    mean: Any
    var: Any
    count: Any

    @classmethod
    def empty(cls, like: Any) -> "InputStatistics":
        real = eqx.filter(like, is_real)
        means = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), real)
        return cls(means, jax.tree.map(jnp.ones_like, means), jnp.float32(1e-4))

    def with_batch(self, batch: Any) -> "InputStatistics":
        """Update by Chan's formula over the first two axes, time and environment."""
        real = eqx.filter(batch, is_real)
        leaves = jax.tree.leaves(real)
        if not leaves:
            return self
        count = leaves[0].shape[0] * leaves[0].shape[1]
        total = self.count + count

        def update_mean(x: Any, mean: Any) -> Any:
            return mean + (x.mean((0, 1)) - mean) * count / total

        def update_var(x: Any, mean: Any, var: Any) -> Any:
            delta = x.mean((0, 1)) - mean
            return (var * self.count + x.var((0, 1)) * count + delta**2 * self.count * count / total) / total

        means = jax.tree.map(update_mean, real, self.mean)
        return InputStatistics(means, jax.tree.map(update_var, real, self.mean, self.var), total)

    def normalize(self, obs: Any) -> Any:
        real, rest = eqx.partition(obs, is_real)
        normalized = jax.tree.map(
            lambda x, mean, var: jnp.clip((x - mean) / jnp.sqrt(var + 1e-8), -10, 10), real, self.mean, self.var
        )
        return eqx.combine(normalized, rest)


class Preprocessor(Module):
    """Converts an observation to the network's input."""

    flatten: bool = eqx.field(static=True)
    normalize: bool = eqx.field(static=True)

    def features(self, obs: Any) -> Any:
        """The observation, flattened if the network takes vectors."""
        return flatten_obs(obs) if self.flatten else obs

    def __call__(self, statistics: InputStatistics, obs: Any) -> Any:
        features = self.features(obs)
        return statistics.normalize(features) if self.normalize else features
