"""A network for source tracking that observes the belief, as in Loisy & Heinonen (2023)."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax, nn
from jaxtyping import Array, Float

from tropism.core.module import Module
from tropism.core.spaces import Dict
from tropism.errors import ValidationError
from tropism.train.actions import num_outputs
from tropism.train.linear import Linear, normal_matrices
from tropism.train.network import ACTOR_GAIN

HIDDEN = 96
VALUE_SCALE = 10.0  # steps: search times are of this order


class BeliefNetwork(Module):
    """Three layers on the belief around the agent, so that the input does not depend on where the agent is.

    Expects the observations of `observation="belief"`; the first layer is shared by the actor and the critic.
    """

    encoder: Linear
    actor: tuple[Linear, Linear]
    critic: tuple[Linear, Linear]
    shape: tuple[int, ...] = eqx.field(static=True)  # of the grid

    def __init__(self, observation_space: Any, action_space: Any, *, key: Any):
        if not isinstance(observation_space, Dict) or "belief" not in observation_space.spaces:
            raise ValidationError("network", "BeliefNetwork", 'an environment with observation="belief"')
        self.shape = observation_space.spaces["belief"].shape or ()
        cells, outputs = math.prod(2 * size - 1 for size in self.shape), num_outputs(action_space)
        shapes = ((HIDDEN, cells), (HIDDEN, HIDDEN), (outputs, HIDDEN), (HIDDEN, HIDDEN), (1, HIDDEN))
        encoder, *rest = normal_matrices(key, shapes)
        self.encoder = Linear(encoder, 2**0.5)
        self.actor = Linear(rest[0], 2**0.5), Linear(rest[1], ACTOR_GAIN)
        self.critic = Linear(rest[2], 2**0.5), Linear(rest[3], 1.0)

    def __call__(self, obs: Any, memory: None) -> tuple[Any, Any, None]:  # noqa: ARG002  of the interface
        features = nn.relu(self.encoder(self.center(obs["belief"], obs["position"]).ravel()))
        outputs, value = (last(nn.relu(first(features))) for first, last in (self.actor, self.critic))
        return outputs, VALUE_SCALE * value[0], None

    def center(self, belief: Float[Array, "..."], position: Any) -> Float[Array, "..."]:
        """The square root of the belief, 2 n - 1 cells along an axis of n, with the agent in the middle."""
        root = math.sqrt(belief.size) * jnp.sqrt(belief) / 4  # of order 1 where the belief is
        padded = jnp.pad(root, [(size - 1, size - 1) for size in self.shape])
        return lax.dynamic_slice(padded, position, [2 * size - 1 for size in self.shape])
