"""A strategy: a rule that maps one agent's observation and memory to its next action."""

from abc import abstractmethod
from typing import Any

import equinox as eqx


class Strategy(eqx.Module):
    """Abstract: a `Policy` whose numbers are pytree leaves, so that they vmap."""

    @abstractmethod
    def init(self, key: Any) -> Any:
        """The memory at the start of an episode."""

    @abstractmethod
    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        """`(action, memory)`."""
