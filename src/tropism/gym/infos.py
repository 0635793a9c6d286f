"""Infos of a vector in Gymnasium's form: an array for each key, and under `_key` who has it."""

from operator import itemgetter
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


class Counters:
    """What `info` counts, for each environment of a vector."""

    def __init__(self, num_envs: int):
        self.steps = np.zeros(num_envs, np.int64)
        self.episodes = np.zeros(num_envs, np.int64)
        self.rewards = np.zeros(num_envs)

    def step(self, reward: NDArray[Any]) -> None:
        self.steps += 1
        self.rewards += reward

    def restart(self, which: Mask) -> None:
        np.putmask(self.steps, which, 0)
        np.putmask(self.rewards, which, 0)
        self.episodes += which

    def infos(self) -> dict[str, Any]:
        everywhere = np.ones(self.steps.shape, bool)
        return {
            "step_count": self.steps.copy(),
            "_step_count": everywhere,
            "episode_count": self.episodes.copy(),
            "_episode_count": everywhere.copy(),
            "total_reward": self.rewards.copy(),
            "_total_reward": everywhere.copy(),
        }


def with_mask(infos: dict[str, Any], mask: Mask) -> dict[str, Any]:
    """Add to each key, also inside dicts, the mask of the environments it is true of."""
    result: dict[str, Any] = {}
    for name, value in infos.items():
        value = np.stack(value, -1) if isinstance(value, tuple) else value
        result[name] = with_mask(value, mask) if isinstance(value, dict) else value
        result[f"_{name}"] = mask.copy()
    return result


def only(mask: Mask, infos: dict[str, Any]) -> dict[str, Any]:
    """Infos and masks with zeros and False where `mask` is False."""
    return infos if mask.all() else jax.tree.map(lambda leaf: _where(mask, leaf), infos)


def _where(mask: Mask, leaf: NDArray[Any]) -> NDArray[Any]:
    kept = np.zeros_like(leaf)
    kept[mask] = leaf[mask]
    return kept


def final_observations(obs: Any, done: Mask) -> NDArray[Any]:
    """Gymnasium's form: an array of objects, the last observation where an episode ended, else None."""
    result = np.full(done.shape, None, dtype=object)
    for number in np.flatnonzero(done):
        result[number] = obs[number] if isinstance(obs, np.ndarray) else jax.tree.map(itemgetter(number), obs)
    return result
