"""Infos of a vector in Gymnasium's form: an array for each key, and under `_key` who has it."""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


def with_mask(infos: dict[str, Any], mask: Mask) -> dict[str, Any]:
    """Add to each key, also inside dicts, the mask of the environments it is true of."""
    result: dict[str, Any] = {}
    for name, value in infos.items():
        result[name] = with_mask(value, mask) if isinstance(value, dict) else value
        result[f"_{name}"] = mask.copy()
    return result


def only(mask: Mask, tree: Any) -> Any:
    """The arrays with zeros where the mask is False."""
    return tree if mask.all() else jax.tree.map(lambda leaf: _where(mask, leaf), tree)


def _where(mask: Mask, leaf: NDArray[Any]) -> NDArray[Any]:
    kept = np.zeros_like(leaf)
    kept[mask] = leaf[mask]
    return kept


def final_observations(obs: Any, done: Mask) -> NDArray[Any]:
    """Gymnasium's form: an array of objects, the last observation where an episode ended, else None."""
    result = np.full(done.shape, None, dtype=object)
    for number in np.flatnonzero(done):
        result[number] = obs[number] if isinstance(obs, np.ndarray) else jax.tree.map(lambda leaf: leaf[number], obs)
    return result
