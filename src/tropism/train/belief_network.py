"""Networks for source tracking: one on the belief, and one on the history of hits."""

import itertools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax, nn
from jaxtyping import Array, Float

from tropism.core.module import Module
from tropism.core.spaces import Box, Dict
from tropism.errors import ValidationError
from tropism.train.actions import num_outputs
from tropism.train.linear import Linear, normal_matrices, orthogonalize
from tropism.train.network import ACTOR_GAIN, ActorCritic, Memory

HIDDEN = 24  # units of each symmetry
VALUE_SCALE = 10.0  # steps: search times are of this order


class Symmetry(NamedTuple):
    """Maps offsets of cells: component i of the image is component `axes[i]` times `signs[i]`."""

    axes: tuple[int, ...]
    signs: tuple[int, ...]

    def of_weights(self, weights: Float[Array, "units ..."]) -> Float[Array, "units ..."]:
        """Weights that see in the image of a belief what `weights` see in the belief."""
        turned = weights.transpose(0, *(1 + axis for axis in self.axes))
        return jnp.flip(turned, [1 + axis for axis, sign in enumerate(self.signs) if sign < 0])

    def after(self, first: "Symmetry") -> "Symmetry":
        axes = tuple(first.axes[axis] for axis in self.axes)
        return Symmetry(axes, tuple(sign * first.signs[axis] for axis, sign in zip(self.axes, self.signs, strict=True)))

    def original_action(self, action: int) -> int:
        """The action whose image is `action`; actions are -x, +x, -y, …"""
        axis, sign = action // 2, 2 * (action % 2) - 1
        return 2 * self.axes[axis] + (sign * self.signs[axis] > 0)


def symmetries(shape: tuple[int, ...]) -> list[Symmetry]:
    """All turns and reflections of a grid with equal sides; of another one only the identity."""
    axes = tuple(range(len(shape)))
    if len(set(shape)) > 1:
        return [Symmetry(axes, (1,) * len(axes))]
    signs = list(itertools.product((1, -1), repeat=len(axes)))
    return [Symmetry(turned, each) for turned in itertools.permutations(axes) for each in signs]


class BeliefNetwork(Module):
    """Three layers on the belief around the agent, equivariant: if the belief is turned, so are the actions.

    Expects the observations of `observation="belief"`. The units of a layer exist once for each symmetry of the grid,
    with the same weights (Cohen & Welling 2016). The actor and the critic share all but the last layer.
    """

    encoder: Linear
    mixer: Float[Array, "symmetries hidden hidden"]
    mixer_bias: Float[Array, " hidden"]
    actor: Linear
    critic: Linear
    shape: tuple[int, ...] = eqx.field(static=True)  # of the grid

    def __init__(self, observation_space: Any, action_space: Any, *, key: Any):
        self.shape = _belief_space(observation_space, "BeliefNetwork").shape or ()
        count, outputs = len(symmetries(self.shape)), num_outputs(action_space)
        cells = math.prod(2 * size - 1 for size in self.shape)
        shapes = ((HIDDEN, cells), (count * HIDDEN, HIDDEN), (outputs, HIDDEN), (1, HIDDEN))
        encoder, mixer, actor, critic = normal_matrices(key, shapes)
        self.encoder = Linear(encoder, 2**0.5)
        self.mixer = 2**0.5 * orthogonalize(mixer).reshape(count, HIDDEN, HIDDEN)
        self.mixer_bias = jnp.zeros(HIDDEN)
        self.actor, self.critic = Linear(actor, ACTOR_GAIN), Linear(critic, 1.0)

    def __call__(self, obs: Any, memory: None) -> tuple[Any, Any, None]:  # noqa: ARG002  of the interface
        group = symmetries(self.shape)
        fields = self.encoder.weight.reshape(HIDDEN, *(2 * size - 1 for size in self.shape))
        weights = jnp.stack([each.of_weights(fields) for each in group]).reshape(len(group) * HIDDEN, -1)
        belief = self.center(obs["belief"], obs["position"]).ravel()
        features = nn.relu((belief @ weights.T).reshape(len(group), HIDDEN) + self.encoder.bias)
        features = nn.relu((features.ravel() @ self._mixing(group)).reshape(len(group), HIDDEN) + self.mixer_bias)
        originals = np.array([[each.original_action(a) for a in range(len(self.actor.bias))] for each in group])
        outputs = self.actor(features)[np.arange(len(group))[:, None], originals].mean(0)
        return outputs, VALUE_SCALE * self.critic(features.mean(0))[0], None

    def _mixing(self, group: list[Symmetry]) -> Float[Array, "inputs outputs"]:
        """The second layer as one matrix: from the units of symmetry g after k to those of g, the weights of k."""
        numbers = {each: number for number, each in enumerate(group)}
        relative = np.zeros((len(group), len(group)), int)  # by input and output
        for g, k in itertools.product(group, group):
            relative[numbers[g.after(k)], numbers[g]] = numbers[k]
        return self.mixer[relative].transpose(0, 3, 1, 2).reshape(2 * [len(group) * HIDDEN])

    def center(self, belief: Float[Array, "..."], position: Any) -> Float[Array, "..."]:
        """The square root of the belief, 2 n - 1 cells along an axis of n, with the agent in the middle."""
        root = math.sqrt(belief.size) * jnp.sqrt(belief) / 4  # of order 1 where the belief is
        padded = jnp.pad(root, [(size - 1, size - 1) for size in self.shape])
        return lax.dynamic_slice(padded, position, [2 * size - 1 for size in self.shape])


class HistoryNetwork(Module):
    """The built-in recurrent network on the hits and the position, for observations that also have the belief.

    With `observation="belief"` a teacher can observe the belief, which this network does not.
    """

    network: ActorCritic
    shape: tuple[int, ...] = eqx.field(static=True)  # of the grid

    def __init__(self, observation_space: Any, action_space: Any, *, key: Any):
        self.shape = _belief_space(observation_space, "HistoryNetwork").shape or ()
        inputs = Box(-1, 1, (1 + len(self.shape),))
        self.network = ActorCritic(inputs, action_space, key=key, hidden=64, recurrent=True)

    def memory(self) -> Memory | None:
        return self.network.memory()

    def remember(self, memory: Memory | None, action: Any) -> Memory | None:
        return self.network.remember(memory, action)

    def __call__(self, obs: Any, memory: Memory | None) -> tuple[Any, Any, Memory | None]:
        position = 2 * obs["position"] / (jnp.array(self.shape) - 1) - 1
        outputs, value, memory = self.network(jnp.concatenate([obs["hits"], position]), memory)
        return outputs, VALUE_SCALE * value, memory


def _belief_space(observation_space: Any, network: str) -> Any:
    if not isinstance(observation_space, Dict) or "belief" not in observation_space.spaces:
        raise ValidationError("network", network, 'an environment with observation="belief"')
    return observation_space.spaces["belief"]
