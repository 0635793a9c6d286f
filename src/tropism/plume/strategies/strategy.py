"""A strategy: a rule that maps one agent's observation and memory to its next action."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from tropism.plume.strategies import steering


class Strategy(eqx.Module):
    """Abstract: a `Policy` whose numbers are pytree leaves, so that they vmap."""

    @abstractmethod
    def init(self, key: Any) -> Any:
        """The memory at the start of an episode."""

    @abstractmethod
    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        """`(action, memory)`."""


class SmellMemory(eqx.Module):
    """The memory of a strategy that compares concentrations and steers to a heading."""

    heading: Float[Array, ""]
    target_heading: Float[Array, ""]
    smell: Float[Array, ""]  # a step ago

    @classmethod
    def start(cls, key: Any) -> "SmellMemory":
        heading = steering.random_heading(key)
        return cls(jnp.zeros_like(heading), heading, jnp.zeros_like(heading))
