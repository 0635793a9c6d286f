"""Clients of a Tropism server; imports neither JAX nor Gymnasium."""

from importlib import import_module
from typing import TYPE_CHECKING

from tropism.errors import require_extra

if TYPE_CHECKING:
    from tropism.client.asynchronous import AsyncClient
    from tropism.client.result import StepResult
    from tropism.client.sync import Client
    from tropism.client.vector import VectorClient

__all__ = ["AsyncClient", "Client", "StepResult", "VectorClient"]

_MODULES = {
    "AsyncClient": "tropism.client.asynchronous",
    "Client": "tropism.client.sync",
    "StepResult": "tropism.client.result",
    "VectorClient": "tropism.client.vector",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load each client on first use: only the vector client needs NumPy."""
        if name not in _MODULES:
            raise AttributeError(f"module 'tropism.client' has no attribute {name!r}")
        require_extra("client", "tropism.client", "msgspec", "websockets")
        return getattr(import_module(_MODULES[name]), name)
