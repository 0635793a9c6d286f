"""Trained agents as policies."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from tropism.core.spaces import Space
from tropism.errors import ValidationError
from tropism.plume.strategies import Strategy
from tropism.train import checkpoint
from tropism.train.actions import ActionDistribution
from tropism.train.agent import Agent
from tropism.train.observations import InputStatistics, Preprocessor


class TrainedPolicy(Strategy):
    """Samples actions as in training; `greedy` takes the most likely action instead."""

    agent: Agent
    statistics: InputStatistics
    actions: ActionDistribution
    preprocess: Preprocessor
    observation_space: Space
    greedy: bool = eqx.field(static=True, default=False)

    def init(self, key: Any) -> Any:
        return self.agent.memory()

    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        outputs, _, memory = self.agent(self.preprocess(self.statistics, jax.tree.map(jnp.asarray, obs)), memory)
        action = self.actions.mode(outputs) if self.greedy else self.actions.sample(key, self.agent.log_std, outputs)
        return self.actions.to_env(action), self.agent.remember(memory, action)


def load(path: Path, seed: int = 0, greedy: bool = False, network: type | None = None) -> TrainedPolicy:
    """Agent number `seed` of a checkpoint; `network` is a class that cannot be imported by its name."""
    training, train, _ = checkpoint.load(path, network)
    if not 0 <= seed < training.seeds:
        raise ValidationError("seed", seed, f"one of the {training.seeds} agents of this training, from 0")
    trainer = training.trainer()
    train = jax.tree.map(lambda leaf: leaf[seed], train)
    space = trainer.observation_space()
    return TrainedPolicy(train.agent, train.obs_statistics, trainer.actions, trainer.preprocess, space, greedy)
