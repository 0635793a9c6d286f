"""Action distributions: sampling, log probability and entropy, given a network's outputs."""

import math
from typing import Any

import jax.numpy as jnp
from jax import nn, random

from tropism.core.module import Module
from tropism.core.spaces import Box, Discrete, Space
from tropism.errors import ValidationError


def outputs_shape(space: Space) -> tuple[int, ...]:
    """The shape of a network's outputs: logits for a Discrete space, means for a Box of floats."""
    if isinstance(space, Discrete):
        return (space.n,)
    if isinstance(space, Box) and space.dtype.kind == "f":
        return space.shape
    raise ValidationError("action_space", space, "Discrete or a Box of floats; PPO supports no other action space")


def num_outputs(space: Space) -> int:
    return math.prod(outputs_shape(space))


class ActionDistribution(Module):
    """Categorical for Discrete, diagonal Gaussian for Box. The network sees the bounds of a Box as -1 and 1."""

    space: Space

    def sample(self, key: Any, log_std: Any, outputs: Any) -> Any:
        """An action in network units: an index from 0, or an array scaled to -1..1."""
        if isinstance(self.space, Discrete):
            return random.categorical(key, outputs)
        return outputs + jnp.exp(log_std) * random.normal(key, outputs.shape)

    def mode(self, outputs: Any) -> Any:
        return jnp.argmax(outputs) if isinstance(self.space, Discrete) else outputs

    def to_env(self, action: Any) -> Any:
        """Convert from network units to the action space."""
        if isinstance(self.space, Discrete):
            return (action + self.space.start).astype(jnp.int32)
        low, high = jnp.asarray(self.space.low), jnp.asarray(self.space.high)  # pyright: ignore
        bounded = jnp.isfinite(low) & jnp.isfinite(high)
        inside = jnp.clip(low + (jnp.clip(action, -1, 1) + 1) / 2 * (high - low), low, high)
        return jnp.where(bounded, inside, jnp.clip(action, low, high)).astype(self.space.dtype)

    def log_prob_and_entropy(self, log_std: Any, outputs: Any, action: Any) -> tuple[Any, Any]:
        """`(log probability, entropy)` of one action."""
        if isinstance(self.space, Discrete):
            logits = nn.log_softmax(outputs)
            return logits[action], -jnp.sum(jnp.exp(logits) * logits)
        z = (action - outputs) / jnp.exp(log_std)
        size = 0.5 * jnp.log(2 * jnp.pi)
        return jnp.sum(-0.5 * z**2 - log_std - size), jnp.sum(log_std + 0.5 + size)
