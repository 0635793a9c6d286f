"""A strategy: a rule that maps one agent's observation and memory to its next action."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
from jax import random

from tropism.core.rollout.api import Policy


class Strategy(eqx.Module):
    """Abstract. Pure and for one agent, so it can be compiled for populations; numbers are pytree leaves."""

    @abstractmethod
    def init(self, key: Any) -> Any:
        """The memory at the start of an episode."""

    @abstractmethod
    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        """`(action, memory)`."""


def as_policy(strategy: Strategy) -> Policy:
    """The strategy as a batched policy for `rollout`, with `policy_state=first_memories(...)`.

    A policy does not see the end of an episode, so an agent keeps its memory in the next one.
    If that matters, use `tropism.plume.search`, which runs one episode per agent.
    """

    def policy(key: Any, memories: Any, obs: Any) -> tuple[Any, Any]:
        num_envs = jax.tree.leaves(obs)[0].shape[0]
        return jax.vmap(strategy.act)(random.split(key, num_envs), memories, obs)

    return policy


def first_memories(strategy: Strategy, key: Any, num_envs: int) -> Any:
    return jax.vmap(strategy.init)(random.split(key, num_envs))
