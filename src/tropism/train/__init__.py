"""Training: PPO compiled end to end, its checkpoints, and evaluation."""
