"""An agent: a network, built-in or user-defined, and the log standard deviation of its continuous actions.

A network is an `equinox.Module`, constructed as `Network(observation_space, action_space, *, key)` and called for one
observation as `network(obs, memory) -> (outputs, value, memory)`. Two methods are optional: `memory()` returns the
memory at the start of an episode (default None); `remember(memory, action)` returns the memory after an action.
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
from tropism.core.rollout.policy import jax_key
from tropism.core.spaces import Box, Space
from tropism.train.actions import ActionDistribution
from tropism.train.network import ActorCritic
from tropism.train.observations import InputStatistics, Preprocessor, flatten_obs


class CachedHash:
    """Caches the hash, because JAX hashes static arguments at each call of a compiled function."""

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(vars(self).values()))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class NetworkSpec(CachedHash):
    """How to construct a network; hashable, so that equal training runs share one compilation."""

    __hash__ = CachedHash.__hash__

    network_class: Any
    recurrent: bool  # whether the network has a memory
    options: tuple[tuple[str, Any], ...] = ()  # keyword arguments of the built-in network
    observation_space: Space | None = None  # None: observations are flattened into a vector
    action_space: Space | None = None  # None: use the trainer's

    @property
    def flatten(self) -> bool:
        return self.observation_space is None

    def make_agent(self, obs: Any, action_space: Space, key: Any) -> "Agent":
        """An agent for observations shaped like `obs`."""
        inputs = self.observation_space
        if inputs is None:
            inputs = Box(-np.inf, np.inf, flatten_obs(obs).shape)
        outputs = action_space if self.action_space is None else self.action_space
        return Agent(self.network_class(inputs, outputs, key=key, **dict(self.options)), action_space)

    @property
    def summary(self) -> str:
        if self.network_class is not ActorCritic:
            return f"the network {self.network_class.__name__}"
        if not self.flatten:
            return "a convolutional network"
        return "a recurrent network" if self.recurrent else "a vector network"


@dataclass(frozen=True)
class NetworkStructure(CachedHash):
    """A network without its arrays."""

    __hash__ = CachedHash.__hash__
    network: Any


class Agent(Module):
    """A network, split into arrays and static structure so that the training state is a pytree of arrays."""

    weights: Any
    log_std: Float[Array, "..."]  # of continuous actions; empty for discrete ones
    structure: NetworkStructure = eqx.field(static=True)

    def __init__(self, network: Any, action_space: Space):
        network = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, network)
        self.weights, rest = eqx.partition(network, eqx.is_array)
        self.structure = NetworkStructure(rest)
        self.log_std = jnp.zeros(action_space.shape if isinstance(action_space, Box) else 0)

    @property
    def network(self) -> Any:
        return eqx.combine(self.weights, self.structure.network)

    def memory(self) -> Any:
        """The memory at the start of an episode."""
        start = getattr(self.network, "memory", None)
        return jax.tree.map(drop_weak_type, start()) if callable(start) else None

    def __call__(self, obs: Any, memory: Any) -> tuple[Any, Any, Any]:
        outputs, value, memory = self.network(obs, memory)
        return outputs, value, jax.tree.map(drop_weak_type, memory)

    def remember(self, memory: Any, action: Any) -> Any:
        """The memory after an action."""
        remember = getattr(self.network, "remember", None)
        return jax.tree.map(drop_weak_type, remember(memory, action)) if callable(remember) else memory


def drop_weak_type(leaf: Any) -> Any:
    """Remove JAX's weak type, which would trigger a second compilation."""
    array = jnp.asarray(leaf)
    return lax.convert_element_type(array, array.dtype)


def reset_memory_where(done: Any, memory: Any, initial: Any) -> Any:
    """Replace the memories of finished episodes in a batch by the initial memory."""

    def choose(leaf: Any, first: Any) -> Any:
        return jnp.where(done.reshape(-1, *[1] * (leaf.ndim - 1)), first, leaf)

    return jax.tree.map(choose, memory, initial)


class AgentPolicy(Module):
    """A trained agent as a policy: samples actions as in training; `greedy` takes the most likely action."""

    agent: Agent
    statistics: InputStatistics
    actions: ActionDistribution
    preprocess: Preprocessor
    greedy: bool = eqx.field(static=True, default=False)

    def init(self, key: Any) -> Any:  # noqa: ARG002  of the interface
        return self.agent.memory()

    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        outputs, _, memory = self.agent(self.preprocess(self.statistics, jax.tree.map(jnp.asarray, obs)), memory)
        if self.greedy:
            action = self.actions.mode(outputs)
        else:
            action = self.actions.sample(jax_key(key), self.agent.log_std, outputs)
        return self.actions.to_env(action), self.agent.remember(memory, action)
