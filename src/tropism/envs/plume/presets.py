"""Tuned hyperparameters for plume searches."""

from typing import Any

from tropism.core.registry import preset

PLUME: dict[str, Any] = {
    "recurrent": True,
    "num_envs": 256,
    "num_steps": 32,
    "total_steps": 1_500_000,
    "epochs": 8,
    "learning_rate": 2e-3,
    "entropy": 0.002,
    "hidden": 32,
}
PUFFS: dict[str, Any] = {  # gaps between puffs are long: so are the sequences that the memory is trained on
    "num_envs": 64,
    "num_steps": 256,
    "total_steps": 2_000_000,
    "epochs": 6,
    "learning_rate": 3e-3,
    "gamma": 0.997,
    "gae_lambda": 0.97,
    "entropy": 0.01,
}
SINGH: dict[str, Any] = {
    "num_envs": 1024,
    "num_steps": 64,
    "total_steps": 12_000_000,
    "epochs": 4,
    "minibatches": 8,
    "gamma": 0.995,
    "gae_lambda": 0.96,
    "entropy": 0.002,
    "hidden": 64,
}

plume_preset = preset("ppo", **PLUME)
puffs_preset = preset("ppo", **PLUME | PUFFS)
singh_preset = preset("ppo", **PLUME | SINGH)
