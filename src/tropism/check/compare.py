"""Copies of returned values, and the first place where two of them differ."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tropism.errors import shorten

TOLERANCE = 1e-4  # between two compilations of the same arithmetic, over a few steps


def to_host(tree: Any) -> Any:
    """An independent copy: arrays as NumPy arrays, PRNG keys as their words."""
    return jax.tree.map(_host_leaf, tree)


def difference(actual: Any, expected: Any, tolerance: float = 0.0) -> str | None:
    """A description of where two trees first differ; None if they are equal (NaN equals NaN)."""
    left, left_shape = jax.tree_util.tree_flatten_with_path(actual)
    right, right_shape = jax.tree_util.tree_flatten_with_path(expected)
    if left_shape != right_shape:
        return f"the structure is {shorten(left_shape)}, not {shorten(right_shape)}"
    for (path, x), (_, y) in zip(left, right, strict=True):
        if not _equal(x, y, tolerance):
            where = jax.tree_util.keystr(path, simple=True, separator=".") or "value"
            return f"{where} is {format_value(x)}, not {format_value(y)}"
    return None


def format_value(value: Any) -> str:
    """A value on one short line."""
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        value = np.asarray(to_host(value)).tolist()
    return " ".join(shorten(value).split())


def structure_of(tree: Any) -> Any:
    """Structure, shapes and dtypes, which have to be the same at every step."""
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
    # Rounding may differ by one in a pixel.
    slack = 1 if tolerance and x.dtype == y.dtype == np.uint8 else 0
    return bool((np.abs(x.astype(np.int64) - y.astype(np.int64)) <= slack).all()) if slack else bool((x == y).all())
