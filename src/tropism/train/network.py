"""The built-in network: an actor and a critic, with convolutions for images and an optional GRU."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import nn, random
from jaxtyping import Array, Float

from tropism.core.module import Module
from tropism.core.spaces import Discrete
from tropism.train.actions import num_outputs, outputs_shape
from tropism.train.linear import Linear, normal_matrices
from tropism.train.pixels import ConvEncoder, is_image, plan_convolutions

ACTOR_GAIN = 0.01  # gain of the actor's last layer: initial actions are nearly uniform


class Torso(Module):
    """Two layers, followed by a GRU if the network is recurrent."""

    layers: tuple[Linear, Linear]
    cell: eqx.nn.GRUCell | None

    def __init__(self, first: Float[Array, "hidden in"], second: Float[Array, "hidden hidden"], cell: Any):
        self.layers = (Linear(first, 2**0.5), Linear(second, 2**0.5))
        self.cell = cell

    def __call__(self, x: Any, memory: Any) -> Any:
        """The features; in a recurrent torso they are also the next memory."""
        for layer in self.layers:
            x = jnp.tanh(layer(x))
        return x if self.cell is None else self.cell(x, memory)


class Memory(Module):
    """The memory of a recurrent network."""

    cells: Float[Array, "2 size"]  # of actor and critic
    action: Float[Array, " actions"]  # the last one: the meaning of an odour depends on the last move


class ActorCritic(Module):
    """Actor and critic share the convolutions of images; for vectors they share nothing."""

    encoder: ConvEncoder | None
    actor: Torso
    critic: Torso
    policy: Linear
    value: Linear
    shape: tuple[int, ...] = eqx.field(static=True)  # of the outputs
    discrete: bool = eqx.field(static=True)
    hidden: int = eqx.field(static=True)
    recurrent: bool = eqx.field(static=True)

    def __init__(
        self, observation_space: Any, action_space: Any, *, key: Any, hidden: int = 64, recurrent: bool = False
    ):
        plan = plan_convolutions(observation_space.shape) if is_image(observation_space) else None
        outputs = num_outputs(action_space)
        inputs = (observation_space.shape[0] if plan is None else plan.features) + (outputs if recurrent else 0)
        key, *cell_keys = random.split(key, 3)
        torso = ((hidden, inputs), (hidden, hidden))
        filters = () if plan is None else tuple(shape for shape, _, _ in plan.layers)
        normals = normal_matrices(key, (*torso, *torso, (outputs, hidden), (1, hidden), *filters))
        cells = [eqx.nn.GRUCell(hidden, hidden, key=key) if recurrent else None for key in cell_keys]
        self.encoder = None if plan is None else ConvEncoder(observation_space, normals[6:])
        self.actor = Torso(normals[0], normals[1], cells[0])
        self.critic = Torso(normals[2], normals[3], cells[1])
        self.policy = Linear(normals[4], ACTOR_GAIN)
        self.value = Linear(normals[5], 1.0)
        self.shape = outputs_shape(action_space)
        self.discrete = isinstance(action_space, Discrete)
        self.hidden = hidden
        self.recurrent = recurrent

    def memory(self) -> Memory | None:
        """The memory at the start of an episode."""
        return Memory(jnp.zeros((2, self.hidden)), jnp.zeros_like(self.policy.bias)) if self.recurrent else None

    def __call__(self, obs: Any, memory: Memory | None) -> tuple[Any, Any, Memory | None]:
        x = obs if self.encoder is None else self.encoder(obs)
        x = x if memory is None else jnp.concatenate([x, memory.action])
        cells = (None, None) if memory is None else memory.cells
        actor_features, critic_features = self.actor(x, cells[0]), self.critic(x, cells[1])
        outputs = self.policy(actor_features).reshape(self.shape)
        after = None if memory is None else Memory(jnp.stack([actor_features, critic_features]), memory.action)
        return outputs, self.value(critic_features)[0], after

    def remember(self, memory: Memory | None, action: Any) -> Memory | None:
        """The memory after an action: an index from 0, or an array scaled to -1..1."""
        if memory is None:
            return None
        code = nn.one_hot(action, memory.action.size) if self.discrete else jnp.clip(action, -1, 1).ravel()
        return Memory(memory.cells, code.astype(memory.action.dtype))
