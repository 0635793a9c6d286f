"""Copies of a host environment's values that share nothing which can change, made cheaply."""

import copy
from dataclasses import is_dataclass
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
    if not is_frozen(kind):
        return copy.deepcopy(value)
    held = value.__dict__
    loose = [name for name, item in held.items() if type(item) not in PLAIN]
    if not loose:
        return value
    twin = object.__new__(kind)
    ours = twin.__dict__
    ours.update(held)
    for name in loose:
        ours[name] = fresh(held[name])
    return twin


@cache
def is_frozen(kind: type) -> bool:
    """Whether it is a frozen dataclass of the plain sort, with a `__dict__` that holds all there is to it."""
    if not is_dataclass(kind) or issubclass(kind, eqx.Module) or kind.__dictoffset__ == 0:
        return False
    return bool(kind.__dataclass_params__.frozen)  # pyright: ignore
