"""Hyperparameters of PPO."""

from dataclasses import dataclass, field
from typing import Any

from tropism.errors import ValidationError


def option(default: Any, about: str) -> Any:
    return field(default=default, metadata={"help": about})


@dataclass(frozen=True, kw_only=True)
class Config:
    """Each field is an option of `tropism train`."""

    total_steps: int = option(500_000, "Total environment steps.")
    num_envs: int = option(16, "Parallel environments.")
    num_steps: int = option(128, "Steps per environment between updates.")
    epochs: int = option(4, "Passes over the collected samples per update.")
    minibatches: int = option(4, "Minibatches per pass.")
    learning_rate: float = option(1e-3, "Initial learning rate of Adam.")
    anneal: bool = option(True, "Decay the learning rate linearly to zero.")
    gamma: float = option(0.99, "Discount factor.")
    gae_lambda: float = option(0.95, "GAE lambda.")
    clip: float = option(0.2, "PPO clip range.")
    entropy: float = option(0.01, "Entropy coefficient.")
    value_weight: float = option(0.5, "Value loss coefficient.")
    max_grad_norm: float = option(0.5, "Maximum gradient norm.")
    hidden: int = option(64, "Layer size of the built-in network.")
    recurrent: bool = option(False, "Give the built-in network a memory (GRU).")
    normalize: bool = option(True, "Normalize float observations and scale rewards by running statistics.")

    def __post_init__(self) -> None:
        for name in ("total_steps", "num_envs", "num_steps", "epochs", "minibatches", "hidden"):
            if getattr(self, name) < 1:
                raise ValidationError(name, getattr(self, name), "an integer of at least 1")
        if not self.learning_rate > 0:
            raise ValidationError("learning_rate", self.learning_rate, "more than 0")
        for name in ("gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValidationError(name, getattr(self, name), "0 to 1")
        if self.total_steps < self.batch:
            raise ValidationError("total_steps", self.total_steps, f"at least {self.batch}, the steps of one update")
        sequences = self.num_envs if self.recurrent else self.batch
        if sequences % self.minibatches:
            product = "num_envs" if self.recurrent else "num_envs times num_steps"
            raise ValidationError("minibatches", self.minibatches, f"a divisor of {product}, {sequences}")

    @property
    def batch(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def num_updates(self) -> int:
        return max(1, self.total_steps // self.batch)
