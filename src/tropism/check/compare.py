"""Copies of returned values, and the first place where two values or two runs differ."""

import copy
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tropism.check.law_error import LawError
from tropism.errors import shorten

TOLERANCE = 1e-4  # between two compilations of the same arithmetic, over a few steps
ARRAYS = np.ndarray | np.generic | jax.Array


def to_host(tree: Any) -> Any:
    """An independent copy: arrays as NumPy arrays, PRNG keys as their words."""
    return jax.tree.map(_host_leaf, tree)


def compare_runs(
    actual: Iterable[Any],
    expected: Iterable[Any],
    context: str = "",
    *,
    place: str | None = None,
    tolerance: float = 0.0,
) -> None:
    """Raise a LawError for the first step where two runs of one episode differ; `context` comes before its message."""
    actual, expected = list(actual), list(expected)
    for time, (x, y) in enumerate(zip(actual, expected, strict=False)):
        found = difference(x, y, tolerance)
        if found is not None:
            call, at = ("step", f"step {time}") if time else ("reset", "reset")
            raise LawError(place or call, f"{context}{at}: {found}")
    if len(actual) != len(expected):
        lengths = f"{len(actual) - 1} steps, not {len(expected) - 1}"
        raise LawError(place or "step", f"{context}the episode ended after {lengths}")


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
    if isinstance(value, ARRAYS):
        value = np.asarray(to_host(value)).tolist()
    return " ".join(shorten(value).split())


def is_flag(value: Any) -> bool:
    """Whether a value is a bool scalar, of Python, NumPy or JAX."""
    return isinstance(value, bool) or (isinstance(value, ARRAYS) and value.dtype == np.bool_ and value.shape == ())


def layout(value: Any) -> str:
    """The shapes and types of a value, such as `(float32[4], MazeState, float32[])`."""
    if isinstance(value, tuple):
        return f"({', '.join(layout(item) for item in value)})"
    if isinstance(value, ARRAYS):
        return f"{value.dtype}[{','.join(str(size) for size in value.shape)}]"
    return type(value).__name__


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
    if tolerance and x.dtype == y.dtype == np.uint8:  # rounding may differ by one in a pixel
        return bool((np.abs(x.astype(int) - y) <= 1).all())
    return bool((x == y).all())
