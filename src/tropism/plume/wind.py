"""Winds that are the same everywhere: constant, switching, wandering."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float


class Wind(eqx.Module):
    """Abstract. The velocity of the air, one for the whole arena, changing with time."""

    @abstractmethod
    def init(self, key: Any) -> Any: ...

    @abstractmethod
    def advance(self, key: Any, state: Any, dt: Any) -> Any:
        """The state `dt` seconds later."""

    @abstractmethod
    def velocity(self, state: Any) -> Float[Array, " 2"]: ...
