"""Infos of a vector in Gymnasium's form: an array for each key, and under `_key` who has it."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


class Counters:
    """What `info` counts, for each environment of a vector."""

    def __init__(self, num_envs: int):
        self.seeds = np.full(num_envs, None, object)  # those the caller gave
        self.counts = np.zeros((2, num_envs), np.int64)  # steps, episodes
        self.rewards = np.zeros(num_envs)
        self._everywhere = np.ones((4, num_envs), bool)

    def step(self, reward: NDArray[Any]) -> None:
        self.counts[0] += 1
        self.rewards += reward

    def restart(self, which: Mask) -> None:
        """Of these, the next episodes begin, as nobody gave a seed."""
        if np.count_nonzero(which):
            self.seeds[which] = None
            self.counts[0, which] = 0
            self.counts[1] += which
            self.rewards[which] = 0

    def begin(self, which: Mask, seeds: Sequence[int | None]) -> None:
        """Of these, episodes begin; a seed begins the count of episodes again."""
        given = np.array([seed is not None for seed in seeds])
        self.counts[1, which & given] = 0
        self.restart(which)
        for number in np.flatnonzero(which & given):
            self.seeds[number] = seeds[number]

    def infos(self) -> dict[str, Any]:
        steps, episodes = self.counts.copy()
        a, b, c, d = self._everywhere.copy()
        return {
            "seed": self.seeds.copy(),
            "_seed": a,
            "step_count": steps,
            "_step_count": b,
            "episode_count": episodes,
            "_episode_count": c,
            "total_reward": self.rewards.copy(),
            "_total_reward": d,
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
    """Infos and masks with zeros, None or False where `mask` is False."""
    return infos if mask.all() else jax.tree.map(lambda leaf: _where(mask, leaf), infos)


def _where(mask: Mask, leaf: NDArray[Any]) -> NDArray[Any]:
    kept = np.full_like(leaf, None) if leaf.dtype == object else np.zeros_like(leaf)
    kept[mask] = leaf[mask]
    return kept


def final_observations(obs: Any, done: Mask) -> NDArray[Any]:
    """Gymnasium's form: an array of objects, the last observation where an episode ended, else None."""
    result = np.full(done.shape, None, dtype=object)
    for number in np.flatnonzero(done):
        result[number] = obs[number] if isinstance(obs, np.ndarray) else jax.tree.map(itemgetter(number), obs)
    return result
