"""The numbers of PPO."""

from dataclasses import dataclass, field
from typing import Any

from tropism.errors import ValidationError


def option(default: Any, about: str) -> Any:
    return field(default=default, metadata={"help": about})


@dataclass(frozen=True, kw_only=True)
class Config:
    """Every number of the algorithm; each is an option of `tropism train`."""

    total_steps: int = option(500_000, "Environment steps in all.")
    num_envs: int = option(16, "Environments side by side.")
    num_steps: int = option(128, "Steps of each between two updates.")
    epochs: int = option(4, "Passes over what was seen, an update.")
    minibatches: int = option(4, "Parts of a pass.")
    learning_rate: float = option(1e-3, "Of Adam, at the start.")
    anneal: bool = option(True, "Let the learning rate fall to zero.")
    gamma: float = option(0.99, "What a reward is worth a step later.")
    gae_lambda: float = option(0.95, "How far advantages look ahead.")
    clip: float = option(0.2, "How far a policy may move in an update.")
    entropy: float = option(0.01, "Entropy coefficient.")
    value_weight: float = option(0.5, "Weight of the critic's loss.")
    max_grad_norm: float = option(0.5, "Longest gradient.")
    hidden: int = option(64, "Size of a layer of the built-in network.")
    recurrent: bool = option(False, "Give the built-in network a memory (GRU).")
    normalize: bool = option(True, "Standardise real observations, and scale rewards, by what was seen so far.")

    def __post_init__(self) -> None:
        for name in ("total_steps", "num_envs", "num_steps", "epochs", "minibatches", "hidden"):
            if getattr(self, name) < 1:
                raise ValidationError(name, getattr(self, name), "a whole number of at least 1")
        if not self.learning_rate > 0:
            raise ValidationError("learning_rate", self.learning_rate, "more than 0")
        for name in ("gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValidationError(name, getattr(self, name), "0 to 1")
        if self.total_steps < self.batch:
            raise ValidationError("total_steps", self.total_steps, f"at least one update, {self.batch} steps")
        pieces = self.num_envs if self.recurrent else self.batch
        if pieces % self.minibatches:
            what = "num_envs" if self.recurrent else "num_envs times num_steps"
            raise ValidationError("minibatches", self.minibatches, f"a divisor of {what}, {pieces}")

    @property
    def batch(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def num_updates(self) -> int:
        return max(1, self.total_steps // self.batch)
