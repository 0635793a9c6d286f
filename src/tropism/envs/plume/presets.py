"""Tuned hyperparameters for plume searches."""

from tropism.core.registry import preset

plume_preset = preset(
    "ppo",
    recurrent=True,
    num_envs=256,
    num_steps=32,
    total_steps=1_500_000,
    epochs=8,
    learning_rate=2e-3,
    entropy=0.002,
    hidden=32,
)
