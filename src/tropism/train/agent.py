"""An agent: a network, built-in or the user's own, and the spread of its continuous actions.

A network is an `equinox.Module`, made as `Network(observation_space, action_space, *, key)` and called for one
observation as `network(obs, memory) -> (outputs, value, memory)`. Two methods are optional: `memory()` returns the
memory at the start of an episode (None without it), `remember(memory, action)` the memory after an action was chosen.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from tropism.core.module import Module
from tropism.core.spaces import Box, Space
from tropism.train.network import ActorCritic
from tropism.train.observations import flat


class Hashed:
    """Remembers its hash: what is static in a compiled function is hashed at each call."""

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(vars(self).values()))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Blueprint(Hashed):
    """How the network of a training is made; hashable, so that equal trainings share one compilation."""

    __hash__ = Hashed.__hash__

    kind: Any  # a class
    recurrent: bool  # whether the network has a memory
    options: tuple[tuple[str, Any], ...] = ()  # of the built-in network
    observation_space: Space | None = None  # None: observations are flattened into a vector
    action_space: Space | None = None  # None: the built-in network takes that of the trainer

    @property
    def flatten(self) -> bool:
        return self.observation_space is None

    def agent(self, obs: Any, action_space: Space, key: Any) -> "Agent":
        """An agent for observations like this one."""
        observed = Box(-np.inf, np.inf, flat(obs).shape) if self.observation_space is None else self.observation_space
        acted_in = action_space if self.action_space is None else self.action_space
        return Agent(self.kind(observed, acted_in, key=key, **dict(self.options)), action_space)

    @property
    def summary(self) -> str:
        if self.kind is not ActorCritic:
            return f"the network {self.kind.__name__}"
        if not self.flatten:
            return "a network for pictures"
        return "a recurrent network" if self.recurrent else "a vector network"


@dataclass(frozen=True)
class Form(Hashed):
    """What is left of a network without its arrays."""

    __hash__ = Hashed.__hash__
    network: Any


class Agent(Module):
    """The arrays of a network apart from the rest of it, so that a training is a pytree of arrays alone."""

    weights: Any
    log_std: Float[Array, "..."]  # of continuous actions; empty for discrete ones
    form: Form = eqx.field(static=True)

    def __init__(self, network: Any, action_space: Space):
        network = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, network)
        self.weights, rest = eqx.partition(network, eqx.is_array)
        self.form = Form(rest)
        self.log_std = jnp.zeros(action_space.shape if isinstance(action_space, Box) else 0)

    @property
    def network(self) -> Any:
        return eqx.combine(self.weights, self.form.network)

    def memory(self) -> Any:
        """At the start of an episode."""
        return first_memory(self.network)

    def __call__(self, obs: Any, memory: Any) -> tuple[Any, Any, Any]:
        outputs, value, memory = self.network(obs, memory)
        return outputs, value, jax.tree.map(strong, memory)

    def remember(self, memory: Any, action: Any) -> Any:
        """The memory after an action was chosen."""
        return next_memory(self.network, memory, action)


def first_memory(network: Any) -> Any:
    match network:
        case object(memory=memory) if callable(memory):
            return jax.tree.map(strong, memory())
        case _:
            return None


def next_memory(network: Any, memory: Any, action: Any) -> Any:
    match network:
        case object(remember=remember) if callable(remember):
            return jax.tree.map(strong, remember(memory, action))
        case _:
            return memory


def strong(leaf: Any) -> Any:
    """Without JAX's weak type, which would compile a second program."""
    array = jnp.asarray(leaf)
    return lax.convert_element_type(array, array.dtype)


def forget_where(done: Any, memory: Any, blank: Any) -> Any:
    """A batch of memories; those of finished episodes begin anew."""

    def choose(leaf: Any, first: Any) -> Any:
        return jnp.where(done.reshape(-1, *[1] * (leaf.ndim - 1)), first, leaf)

    return jax.tree.map(choose, memory, blank)
