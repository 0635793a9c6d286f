"""Training: algorithms compiled end to end, checkpoints, and evaluation."""

from typing import TYPE_CHECKING

from tropism.errors import require_extra
from tropism.lazy_imports import load_on_use

if TYPE_CHECKING:
    from tropism.train.algorithm import Algorithm, Config, UpdateMetrics
    from tropism.train.evaluation import evaluate
    from tropism.train.policies import load
    from tropism.train.ppo import PPOConfig
    from tropism.train.run import train
    from tropism.train.training import Training

require_extra("train", "tropism.train", "optax", "matplotlib", "msgspec", "websockets")

__all__ = ["Algorithm", "Config", "PPOConfig", "Training", "UpdateMetrics", "evaluate", "load", "train"]

# Imported on first use: the command line imports this package before it needs JAX.
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
    __getattr__ = load_on_use(__name__, _HOME)
