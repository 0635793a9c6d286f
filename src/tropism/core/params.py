"""The numbers of an environment: replacing some by name, and writing them to files."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from tropism.core.module import Module
from tropism.errors import ValidationError

LARGEST_WRITTEN = 4096  # entries of an array


class EnvParams(Module):
    """The numbers of an environment.

    Plain fields are pytree leaves: they can be vmapped, and a new value does not recompile. Constants derived
    from other fields are computed where they are used, never stored.
    """

    def check_numbers(self) -> None:
        """Raise a ValidationError for numbers that are inconsistent; called after some were overridden by name."""


def override(params: Any, values: Any) -> Any:
    """`params` with some numbers replaced by name; nested ones have dotted names such as "field.sigma"."""
    if isinstance(values, type(params)):
        return values
    if not isinstance(values, Mapping):
        raise ValidationError("params", values, f"a dict of numbers or {type(params).__name__}")
    for name, value in values.items():
        _check_number(str(name), value, value_at(params, str(name)))
        params = replace_at(params, str(name), value)
    if values:
        params.check_numbers()
    return params


def value_at(params: Any, full_name: str, what: str = "params") -> Any:
    """The value with this dotted name; a ValidationError if there is none."""
    for name in full_name.split("."):
        known: list[str] = [field.name for field in fields(params)] if is_dataclass(type(params)) else []
        if name not in known:
            expected = f"a field of {type(params).__name__}: {', '.join(known) or 'it has none'}"
            raise ValidationError(what, full_name, expected)
        params = getattr(params, name)
    return params


def replace_at(params: Any, name: str, value: Any) -> Any:
    """Params with another value at this dotted name."""
    first, _, rest = name.partition(".")
    return replace(params, **{first: replace_at(getattr(params, first), rest, value) if rest else value})


def _check_number(name: str, value: Any, default: Any) -> None:
    if isinstance(default, eqx.Module) and not isinstance(value, eqx.Module):
        raise ValidationError(f"params[{name!r}]", value, f"a component like {type(default).__name__}")
    if isinstance(value, Tracer) or not isinstance(default, int | float | np.ndarray | jax.Array):
        return
    array = np.asarray(value)
    numeric = array.dtype.kind in "iuf" or (array.dtype.kind == "b" and np.asarray(default).dtype.kind == "b")
    if not numeric or not np.all(array == array):
        raise ValidationError(f"params[{name!r}]", value, f"a number like {default!r}, not NaN")
    if np.asarray(default).dtype.kind in "iu" and array.dtype.kind == "f":
        raise ValidationError(f"params[{name!r}]", value, f"an integer like {default!r}")


def leaf_name(path: Any) -> str:
    """The dotted name of a leaf, such as "field.sigma"."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def write_params(params: Any) -> dict[str, Any]:
    """The leaves as JSON, by name; None for a large or non-numeric one, which is taken from the defaults."""
    return {leaf_name(path): _write_leaf(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(params)}


def read_params(defaults: Any, written: Mapping[str, Any]) -> Any:
    """The inverse of `write_params`; a leaf that was not written has its default."""
    leaves, treedef = jax.tree_util.tree_flatten_with_path(defaults)
    named = {leaf_name(path): leaf for path, leaf in leaves}
    for name in written:
        if name not in named:
            raise ValidationError("params", name, f"a number of this environment: {', '.join(named) or 'it has none'}")
    return treedef.unflatten([_read_leaf(leaf, written.get(name)) for name, leaf in named.items()])


def _write_leaf(leaf: Any) -> Any:
    if isinstance(leaf, bool | int | float):
        return leaf
    if isinstance(leaf, np.ndarray | np.generic | jax.Array) and np.size(leaf) <= LARGEST_WRITTEN:
        return {"dtype": np.asarray(leaf).dtype.str, "values": np.asarray(leaf).tolist()}
    return None


def _read_leaf(default: Any, data: Any) -> Any:
    if isinstance(data, dict):
        return np.asarray(data["values"], data["dtype"])
    return default if data is None else data


def params_structure(params: Any) -> Any:
    """The structure of params and their shapes, which must be the same in all episodes."""
    return jax.tree.structure(params), [np.shape(leaf) for leaf in jax.tree.leaves(params)]
