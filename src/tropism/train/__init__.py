"""Training: PPO compiled end to end, its checkpoints, and evaluation."""

from tropism.errors import require_extra

require_extra("train", "tropism.train", "optax", "matplotlib", "msgspec", "websockets")
