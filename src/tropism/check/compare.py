"""Copies of what an environment returned, and the first place where two of them differ."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tropism.errors import shorten

TOLERANCE = 1e-4  # between two compilations of the same arithmetic, over a few steps


def host(tree: Any) -> Any:
    """A copy that nothing else can change: arrays as NumPy's, PRNG keys as their words."""
    return jax.tree.map(_host_leaf, tree)


def difference(ours: Any, theirs: Any, tolerance: float = 0.0) -> str | None:
    """Where two trees first differ, in words; None where they are equal (NaN equals NaN)."""
    left, left_shape = jax.tree_util.tree_flatten_with_path(ours)
    right, right_shape = jax.tree_util.tree_flatten_with_path(theirs)
    if left_shape != right_shape:
        return f"the structure is {shorten(left_shape)}, not {shorten(right_shape)}"
    for (path, x), (_, y) in zip(left, right, strict=True):
        if not _equal(x, y, tolerance):
            where = jax.tree_util.keystr(path, simple=True, separator=".") or "value"
            return f"{where} is {spell(x)}, not {spell(y)}"
    return None


def spell(value: Any) -> str:
    """A value on one short line."""
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        value = np.asarray(host(value)).tolist()
    return " ".join(shorten(value).split())


def kind(tree: Any) -> Any:
    """Structure, shapes and dtypes: what has to be the same at every step."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(np.shape(leaf), _dtype(leaf)) for leaf in leaves]


def _dtype(leaf: Any) -> str:
    return str(leaf.dtype) if isinstance(leaf, np.ndarray | np.generic | jax.Array) else type(leaf).__name__


def _host_leaf(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return np.array(random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
    return copy.deepcopy(leaf)


def _equal(x: Any, y: Any, tolerance: float) -> bool:
    x, y = (_host_leaf(leaf) if isinstance(leaf, jax.Array) else leaf for leaf in (x, y))
    if not isinstance(x, np.ndarray | np.generic | int | float) or isinstance(y, str | bytes):
        return bool(np.all(x == y))
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape:
        return False
    if x.dtype.kind in "fc" or y.dtype.kind in "fc":
        return bool(np.allclose(x, y, tolerance, tolerance, equal_nan=True))
    # A rounded pixel may fall either way.
    slack = 1 if tolerance and x.dtype == y.dtype == np.uint8 else 0
    return bool((np.abs(x.astype(np.int64) - y.astype(np.int64)) <= slack).all()) if slack else bool((x == y).all())
