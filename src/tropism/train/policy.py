"""A trained agent as a strategy, to be evaluated like any other."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from tropism.errors import ValidationError
from tropism.plume.strategies import Strategy
from tropism.train import checkpoint
from tropism.train.network import Actions, Agent, flat
from tropism.train.ppo import Moments


class Trained(Strategy):
    """Draws its actions as it did in training; `greedy` takes the likeliest instead."""

    agent: Agent
    moments: Moments
    actions: Actions
    normalize: bool = eqx.field(static=True)
    greedy: bool = eqx.field(static=True, default=False)

    def init(self, key: Any) -> Any:
        return self.agent.memory()

    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        x = flat(obs)
        memory, outputs, _ = self.agent(memory, self.moments.scaled(x) if self.normalize else x)
        action = self.actions.best(outputs) if self.greedy else self.actions.draw(key, self.agent, outputs)
        return self.actions.played(action), self.actions.remember(memory, action)


def load(path: Path, seed: int = 0, greedy: bool = False) -> Trained:
    """Agent number `seed` of a checkpoint."""
    recipe, train, _ = checkpoint.load(path)
    if not 0 <= seed < recipe.seeds:
        raise ValidationError("seed", seed, f"one of the {recipe.seeds} agents of this training, from 0")
    trainer = recipe.trainer()
    one = jax.tree.map(lambda leaf: leaf[seed], eqx.filter(train, eqx.is_array))
    train = eqx.combine(one, eqx.filter(train, eqx.is_array, inverse=True))
    return Trained(train.agent, train.obs_moments, trainer.actions, recipe.config.normalize, greedy)
