"""Copies of a host environment's values that share nothing which can change, made cheaply."""

import copy
from dataclasses import is_dataclass
from functools import cache
from types import MethodType
from typing import Any

import equinox as eqx

from tropism.core.spaces.hints import PLAIN


def light(method: Any) -> Any:
    """A method of an Equinox module as Python's own: theirs costs tens of microseconds to look up."""
    return MethodType(method.__func__, method.__self__)


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
    twin = value
    for name, item in value.__dict__.items():
        if type(item) not in PLAIN:
            if twin is value:
                twin = object.__new__(kind)
                twin.__dict__.update(value.__dict__)
            twin.__dict__[name] = fresh(item)
    return twin


@cache
def is_frozen(kind: type) -> bool:
    """Whether it is a frozen dataclass of the plain sort, whose fields are all there is to it."""
    return is_dataclass(kind) and kind.__dataclass_params__.frozen and not issubclass(kind, eqx.Module)  # pyright: ignore
