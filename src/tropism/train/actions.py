"""How actions are drawn from a network's outputs, and how likely they were."""

import math
from typing import Any

import jax.numpy as jnp
from jax import nn, random

from tropism.core.module import Module
from tropism.core.spaces import Box, Discrete, Space
from tropism.errors import ValidationError


def outputs_shape(space: Space) -> tuple[int, ...]:
    """The shape of a network's outputs: logits of a Discrete space, means of a Box of real numbers."""
    if isinstance(space, Discrete):
        return (space.n,)
    if isinstance(space, Box) and space.dtype.kind == "f":
        return space.shape
    raise ValidationError("action_space", space, "Discrete, or a Box of real numbers: PPO supports no other")


def num_outputs(space: Space) -> int:
    return math.prod(outputs_shape(space))


class Actions(Module):
    """The actions of one space. A Box is scaled so that its bounds are -1 and 1 for the network."""

    space: Space

    def draw(self, key: Any, log_std: Any, outputs: Any) -> Any:
        """An action in the units of the outputs: an index from 0, or an array whose box is -1 to 1."""
        if isinstance(self.space, Discrete):
            return random.categorical(key, outputs)
        return outputs + jnp.exp(log_std) * random.normal(key, outputs.shape)

    def best(self, outputs: Any) -> Any:
        return jnp.argmax(outputs) if isinstance(self.space, Discrete) else outputs

    def played(self, action: Any) -> Any:
        """The action as the environment takes it."""
        if isinstance(self.space, Discrete):
            return (action + self.space.start).astype(jnp.int32)
        low, high = jnp.asarray(self.space.low), jnp.asarray(self.space.high)  # pyright: ignore
        bounded = jnp.isfinite(low) & jnp.isfinite(high)
        inside = jnp.clip(low + (jnp.clip(action, -1, 1) + 1) / 2 * (high - low), low, high)
        return jnp.where(bounded, inside, jnp.clip(action, low, high)).astype(self.space.dtype)

    def log_prob(self, log_std: Any, outputs: Any, action: Any) -> tuple[Any, Any]:
        """`(log probability, entropy)` of one action."""
        if isinstance(self.space, Discrete):
            logits = nn.log_softmax(outputs)
            return logits[action], -jnp.sum(jnp.exp(logits) * logits)
        z = (action - outputs) / jnp.exp(log_std)
        size = 0.5 * jnp.log(2 * jnp.pi)
        return jnp.sum(-0.5 * z**2 - log_std - size), jnp.sum(log_std + 0.5 + size)
