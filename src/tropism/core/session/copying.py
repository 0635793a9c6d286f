"""Copies of a host environment's values that share nothing which can change, made cheaply."""

import copy
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import equinox as eqx

from tropism.core.spaces.hints import PLAIN


def fresh(value: Any) -> Any:
    """A copy that shares nothing with `value` that can change; what cannot change is not copied."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is dict:
        return {name: item if type(item) in PLAIN else fresh(item) for name, item in value.items()}
    if kind is tuple:
        return tuple([item if type(item) in PLAIN else fresh(item) for item in value])
    names = field_names(kind)
    if names is None:
        return copy.deepcopy(value)
    for name in names:  # not by `__dict__`, which takes memory for as long as the value lives
        if type(getattr(value, name)) not in PLAIN:
            break
    else:
        return value
    twin = object.__new__(kind)
    ours = twin.__dict__
    ours.update(value.__dict__)
    for name, item in ours.items():
        if type(item) not in PLAIN:
            ours[name] = fresh(item)
    return twin


@cache
def field_names(kind: type) -> tuple[str, ...] | None:
    """Those of a frozen dataclass of the plain sort, with a `__dict__` that holds all there is to it; else None."""
    if not is_dataclass(kind) or issubclass(kind, eqx.Module) or kind.__dictoffset__ == 0:
        return None
    return tuple(field.name for field in fields(kind)) if kind.__dataclass_params__.frozen else None  # pyright: ignore
