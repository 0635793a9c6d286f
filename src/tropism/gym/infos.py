"""Infos of a vector in Gymnasium's format: an array for each key, and the mask of valid entries under `_key`."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
INT64 = np.dtype(np.int64)


class Counters:
    """The counters in `info` of each environment of a vector; steps are counted by the compiled program."""

    def __init__(self, num_envs: int):
        self.episodes = np.zeros(num_envs, np.int64)
        self.rewards = np.zeros(num_envs)
        self._seeds = np.full(num_envs, None, object)  # passed by the caller, else None
        self._has_seed = np.zeros(num_envs, bool)  # environments with a seed
        self._any_seed = False
        self._all_envs = np.ones(num_envs, bool)

    def start_episodes(self, mask: Mask, seeds: Sequence[int | None]) -> None:
        """Start episodes in the environments of `mask`; a seed resets the episode count."""
        has_seed = mask & np.array([seed is not None for seed in seeds])
        self.episodes[has_seed] = 0
        self.restart_episodes(mask)
        self._has_seed |= has_seed
        self._any_seed = bool(self._has_seed.any())
        np.copyto(self._seeds, np.array(seeds, object), where=has_seed)

    def restart_episodes(self, mask: Mask) -> None:
        """Start the next episodes in the environments of `mask`, without seeds from the caller."""
        (restarted,) = mask.nonzero()
        if not len(restarted):
            return
        self.rewards[restarted] = 0
        self.episodes[restarted] += 1
        if self._any_seed:
            self._seeds[restarted] = None
            self._has_seed[restarted] = False
            self._any_seed = bool(self._has_seed.any())

    def infos(self, steps: NDArray[Any]) -> dict[str, Any]:
        all_envs = self._all_envs.copy()
        return {
            # NumPy fills an empty array of objects with None, in half the time of a copy.
            "seed": self._seeds.copy() if self._any_seed else np.empty(len(self._seeds), object),
            "_seed": all_envs,
            "step_count": steps.astype(INT64),
            "_step_count": all_envs,
            "episode_count": self.episodes.copy(),
            "_episode_count": all_envs,
            "total_reward": self.rewards.copy(),
            "_total_reward": all_envs,
        }

    def infos_where(self, mask: Mask, steps: NDArray[Any], info: dict[str, Any]) -> dict[str, Any]:
        """The counters and `info` of the environments of `mask`."""
        return _keep_where(mask, {**self.infos(steps), **_with_mask(info, self._all_envs)})

    def step_infos(self, steps: NDArray[Any], info: dict[str, Any], restarted: Mask, first: Any) -> dict[str, Any]:
        """The infos after a step; where it restarted an episode, only the names in `first` are valid."""
        infos = self.infos(steps)
        for name, value in info.items():
            infos |= _with_mask({name: value}, infos["_step_count"] if name in first else ~restarted)
        return infos

    def final_infos(self, steps: NDArray[Any], obs: Any, info: dict[str, Any], done: Mask) -> dict[str, Any]:
        """The final observations and infos of the episodes that a step ended."""
        final_obs, final_info = _final_observations(obs, done), self.infos_where(done, steps, info)
        return {"final_obs": final_obs, "_final_obs": done.copy(), "final_info": final_info, "_final_info": done.copy()}


def copy_arrays(tree: Any) -> Any:
    if isinstance(tree, np.ndarray):
        return tree.copy()
    if isinstance(tree, dict):
        return {name: copy_arrays(value) for name, value in tree.items()}
    return jax.tree.map(np.copy, tree)


def _with_mask(infos: dict[str, Any], mask: Mask) -> dict[str, Any]:
    """Add to each key, also in nested dicts, the mask of the environments for which it is valid."""
    result: dict[str, Any] = {}
    for name, value in infos.items():
        value = np.stack(value, -1) if isinstance(value, tuple) else value
        result[name] = _with_mask(value, mask) if isinstance(value, dict) else value
        result[f"_{name}"] = mask.copy()
    return result


def _keep_where(mask: Mask, infos: dict[str, Any]) -> dict[str, Any]:
    """Replace infos and masks by zeros, None or False where `mask` is False."""
    return infos if mask.all() else jax.tree.map(lambda leaf: _where(mask, leaf), infos)


def _where(mask: Mask, leaf: NDArray[Any]) -> NDArray[Any]:
    result = np.full_like(leaf, None) if leaf.dtype == object else np.zeros_like(leaf)
    result[mask] = leaf[mask]
    return result


def _final_observations(obs: Any, done: Mask) -> NDArray[Any]:
    """An object array as in Gymnasium: the last observation where an episode ended, else None."""
    result = np.full(done.shape, None, dtype=object)
    for number in np.flatnonzero(done):
        result[number] = obs[number] if isinstance(obs, np.ndarray) else jax.tree.map(itemgetter(number), obs)
    return result
