"""Training: algorithms compiled end to end, checkpoints, and evaluation."""

from importlib import import_module
from typing import TYPE_CHECKING

from tropism.errors import require_extra

if TYPE_CHECKING:
    from tropism.train.algorithm import Algorithm, Config, UpdateMetrics
    from tropism.train.evaluation import evaluate
    from tropism.train.policies import load
    from tropism.train.ppo import PPOConfig
    from tropism.train.run import train
    from tropism.train.training import Training

require_extra("train", "tropism.train", "optax", "matplotlib", "msgspec", "websockets")

__all__ = ["Algorithm", "Config", "PPOConfig", "Training", "UpdateMetrics", "evaluate", "load", "train"]

_HOME = {
    "Algorithm": "tropism.train.algorithm",
    "Config": "tropism.train.algorithm",
    "PPOConfig": "tropism.train.ppo",
    "Training": "tropism.train.training",
    "UpdateMetrics": "tropism.train.algorithm",
    "evaluate": "tropism.train.evaluation",
    "load": "tropism.train.policies",
    "train": "tropism.train.run",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load each name on first use: the command line imports this package before it needs JAX."""
        if name not in _HOME:
            raise AttributeError(f"module 'tropism.train' has no attribute {name!r}")
        return getattr(import_module(_HOME[name]), name)
