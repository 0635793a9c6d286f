"""A trained agent as a strategy, to be evaluated like any other."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from tropism.core.spaces import Space
from tropism.errors import ValidationError
from tropism.plume.strategies import Strategy
from tropism.train import checkpoint
from tropism.train.actions import Actions
from tropism.train.agent import Agent
from tropism.train.observations import Inputs, Moments


class Trained(Strategy):
    """Draws its actions as it did in training; `greedy` takes the likeliest instead."""

    agent: Agent
    moments: Moments
    actions: Actions
    inputs: Inputs
    observation_space: Space
    greedy: bool = eqx.field(static=True, default=False)

    def init(self, key: Any) -> Any:
        return self.agent.memory()

    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        outputs, _, memory = self.agent(self.inputs(self.moments, jax.tree.map(jnp.asarray, obs)), memory)
        action = self.actions.best(outputs) if self.greedy else self.actions.draw(key, self.agent.log_std, outputs)
        return self.actions.played(action), self.agent.remember(memory, action)


def load(path: Path, seed: int = 0, greedy: bool = False, network: type | None = None) -> Trained:
    """Agent number `seed` of a checkpoint; `network` is a class that the checkpoint cannot import by its name."""
    recipe, train, _ = checkpoint.load(path, network)
    if not 0 <= seed < recipe.seeds:
        raise ValidationError("seed", seed, f"one of the {recipe.seeds} agents of this training, from 0")
    trainer = recipe.trainer()
    train = jax.tree.map(lambda leaf: leaf[seed], train)
    space = trainer.observation_space()
    return Trained(train.agent, train.obs_moments, trainer.actions, trainer.inputs, space, greedy)
