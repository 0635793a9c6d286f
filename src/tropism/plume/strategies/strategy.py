"""A strategy: a rule that maps what one agent senses, and remembers, to its next action."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
from jax import random

from tropism.core.rollout.api import Policy


class Strategy(eqx.Module):
    """Abstract. One agent, pure, so whole populations run compiled; numbers are pytree leaves, so they vmap."""

    @abstractmethod
    def init(self, key: Any) -> Any:
        """The memory at the start of an episode."""

    @abstractmethod
    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        """`(action, memory)`."""


def as_policy(strategy: Strategy) -> Policy:
    """The strategy for a batch, as `rollout` takes it, with `policy_state=first_memories(...)`.

    A policy is not told that an episode ended, so an agent goes into its next episode with the memory of
    the last. Where that matters use `tropism.plume.search`, which runs one episode each.
    """

    def policy(key: Any, memories: Any, obs: Any) -> tuple[Any, Any]:
        num_envs = jax.tree.leaves(obs)[0].shape[0]
        return jax.vmap(strategy.act)(random.split(key, num_envs), memories, obs)

    return policy


def first_memories(strategy: Strategy, key: Any, num_envs: int) -> Any:
    return jax.vmap(strategy.init)(random.split(key, num_envs))
