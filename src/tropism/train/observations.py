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
        leaves = jax.tree.leaves(eqx.filter(batch, is_real))
        if not leaves:
            return self
        count = leaves[0].shape[0] * leaves[0].shape[1]
        total = self.count + count
        form = jax.tree.structure(self.mean)
        means, variances = jax.tree.leaves(self.mean), jax.tree.leaves(self.var)
        after: list[tuple[Any, Any]] = []
        for x, mean, var in zip(leaves, means, variances, strict=True):
            delta = x.mean((0, 1)) - mean
            square = var * self.count + x.var((0, 1)) * count + delta**2 * self.count * count / total
            after.append((mean + delta * count / total, square / total))
        means, variances = (form.unflatten(each) for each in zip(*after, strict=True))
        return InputStatistics(means, variances, total)

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
