"""Training: PPO compiled end to end, its checkpoints, and evaluation."""

from importlib import import_module
from typing import TYPE_CHECKING

from tropism.errors import require_extra

if TYPE_CHECKING:
    from tropism.train.checkpoint import Training
    from tropism.train.config import Config
    from tropism.train.evaluation import evaluate
    from tropism.train.run import train
    from tropism.train.trained import load

require_extra("train", "tropism.train", "optax", "matplotlib", "msgspec", "websockets")

__all__ = ["Config", "Training", "evaluate", "load", "train"]

_HOME = {
    "Config": "tropism.train.config",
    "Training": "tropism.train.checkpoint",
    "evaluate": "tropism.train.evaluation",
    "load": "tropism.train.trained",
    "train": "tropism.train.run",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load each name on first use: the command line imports this package before it needs JAX."""
        if name not in _HOME:
            raise AttributeError(f"module 'tropism.train' has no attribute {name!r}")
        return getattr(import_module(_HOME[name]), name)
