"""Infos of a vector in Gymnasium's form: an array for each key, and under `_key` who has it."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
INT64 = np.dtype(np.int64)


class Counters:
    """What `info` counts, for each environment of a vector; the compiled program counts the steps."""

    def __init__(self, num_envs: int):
        self.episodes = np.zeros(num_envs, np.int64)
        self.rewards = np.zeros(num_envs)
        self._seeds = np.full(num_envs, None, object)  # those the caller gave
        self._given = np.zeros(num_envs, bool)  # where there is one
        self._any_given = False
        self._everywhere = np.ones(num_envs, bool)

    def begin(self, which: Mask, seeds: Sequence[int | None]) -> None:
        """Of these, episodes begin; a seed begins the count of episodes again."""
        given = which & np.array([seed is not None for seed in seeds])
        self.episodes[given] = 0
        self.restart(which)
        self._given |= given
        self._any_given = bool(self._given.any())
        np.copyto(self._seeds, np.array(seeds, object), where=given)

    def restart(self, which: Mask) -> None:
        """Of these, the next episodes begin, with seeds that nobody gave."""
        if not np.count_nonzero(which):
            return
        self.rewards[which] = 0
        self.episodes += which
        if self._any_given:
            self._seeds[which] = None
            self._given[which] = False
            self._any_given = bool(self._given.any())

    def infos(self, steps: NDArray[Any]) -> dict[str, Any]:
        everywhere = self._everywhere.copy()
        return {
            "seed": self._seeds.copy(),
            "_seed": everywhere,
            "step_count": steps.astype(INT64),
            "_step_count": everywhere,
            "episode_count": self.episodes.copy(),
            "_episode_count": everywhere,
            "total_reward": self.rewards.copy(),
            "_total_reward": everywhere,
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
