"""Clients of a Tropism server; imports neither JAX nor Gymnasium."""

from typing import TYPE_CHECKING

from tropism.lazy_imports import load_on_use

if TYPE_CHECKING:
    from tropism.client.asynchronous import AsyncClient
    from tropism.client.result import StepResult
    from tropism.client.sync import Client
    from tropism.client.vector import VectorClient

__all__ = ["AsyncClient", "Client", "StepResult", "VectorClient"]

_EXTRA = ("client", ("msgspec", "websockets"))
# Imported on first use: only the vector client needs NumPy.
_HOME = {
    "AsyncClient": ("tropism.client.asynchronous", *_EXTRA),
    "Client": ("tropism.client.sync", *_EXTRA),
    "StepResult": ("tropism.client.result", *_EXTRA),
    "VectorClient": ("tropism.client.vector", *_EXTRA),
}

if not TYPE_CHECKING:
    __getattr__ = load_on_use(__name__, _HOME)
