"""Tuned hyperparameters of PPO by environment, as differences from the defaults of `PPOConfig`."""

from typing import Any

PLUME = {
    "recurrent": True,
    "num_envs": 256,
    "num_steps": 32,
    "total_steps": 1_500_000,
    "epochs": 8,
    "learning_rate": 2e-3,
    "entropy": 0.002,
    "hidden": 32,
}

PUFFS = PLUME | {  # gaps between puffs are long: so are the sequences that the memory is trained on, and the horizon
    "num_envs": 64,
    "num_steps": 256,
    "total_steps": 2_000_000,
    "epochs": 6,
    "learning_rate": 3e-3,
    "gamma": 0.997,
    "gae_lambda": 0.97,
    "entropy": 0.01,
}

SOURCE_TRACKING = {  # episodes end, and their return is minus the search time, so there is no discount
    "recurrent": True,
    "num_envs": 128,
    "num_steps": 32,
    "total_steps": 1_500_000,
    "epochs": 3,
    "minibatches": 8,
    "learning_rate": 2e-3,
    "gamma": 1.0,
    "entropy": 0.0,
}

PRESETS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"num_steps": 64, "hidden": 32, "learning_rate": 2e-3},
    "Pendulum-v1": {"total_steps": 1_000_000, "gamma": 0.95, "entropy": 0.0},
    "MountainCarContinuous-v0": {"gamma": 0.999, "entropy": 0.0, "num_steps": 512},
    "PixelGridWorld-v0": {"total_steps": 30_000, "num_steps": 64},
    "PlumeNav-v0": PLUME,
    "PlumeNavMeander-v0": PLUME,
    "PlumeNavPuffs-v0": PUFFS,
    "PlumeNavFilaments-v0": PLUME,
    "PlumeNavSingh-v0": PLUME
    | {"num_envs": 1024, "total_steps": 12_000_000, "epochs": 4, "minibatches": 8, "entropy": 0.003, "hidden": 64},
    "SourceTracking1D-v0": SOURCE_TRACKING,
    "SourceTracking19x19-v0": SOURCE_TRACKING,
}
