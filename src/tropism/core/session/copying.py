"""Fast copies of a host environment's values that share nothing mutable."""

import copy
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import equinox as eqx
import numpy as np

from tropism.core.spaces.hints import PLAIN


def defensive_copy(value: Any) -> Any:
    """A copy that shares nothing mutable with `value`; immutable values are not copied."""
    kind = type(value)
    if kind is np.ndarray and not value.dtype.hasobject:
        return value.copy()
    if kind in PLAIN:
        return value
    if kind is dict:
        return {name: item if type(item) in PLAIN else defensive_copy(item) for name, item in value.items()}
    if kind is tuple:
        return tuple([item if type(item) in PLAIN else defensive_copy(item) for item in value])
    names = field_names(kind)
    if names is None:
        return copy.deepcopy(value)
    for name in names:  # not through `__dict__`, which allocates memory for the lifetime of the value
        if type(getattr(value, name)) not in PLAIN:
            break
    else:
        return value
    twin = object.__new__(kind)
    attributes = twin.__dict__
    attributes.update(value.__dict__)
    for name, item in attributes.items():
        if type(item) not in PLAIN:
            attributes[name] = defensive_copy(item)
    return twin


@cache
def field_names(kind: type) -> tuple[str, ...] | None:
    """The field names of a frozen dataclass whose `__dict__` holds its whole state; None for other types."""
    if not is_dataclass(kind) or issubclass(kind, eqx.Module) or kind.__dictoffset__ == 0:
        return None
    return tuple(field.name for field in fields(kind)) if kind.__dataclass_params__.frozen else None  # pyright: ignore
