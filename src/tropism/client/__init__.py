"""Clients of a Tropism server; this room imports neither JAX nor Gymnasium."""

from importlib import import_module
from typing import TYPE_CHECKING

from tropism.errors import require_extra

if TYPE_CHECKING:
    from tropism.client.asynchronous import AsyncClient
    from tropism.client.result import StepResult
    from tropism.client.sync import Client
    from tropism.client.vector import VectorClient

__all__ = ["AsyncClient", "Client", "StepResult", "VectorClient"]

_HOME = {
    "AsyncClient": "tropism.client.asynchronous",
    "Client": "tropism.client.sync",
    "StepResult": "tropism.client.result",
    "VectorClient": "tropism.client.vector",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Each is loaded when it is first used: a vector client needs NumPy, the others do not."""
        if name not in _HOME:
            raise AttributeError(f"module 'tropism.client' has no attribute {name!r}")
        require_extra("client", "tropism.client", "msgspec", "websockets")
        return getattr(import_module(_HOME[name]), name)
