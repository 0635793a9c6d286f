"""Composite spaces: Dict and Tuple."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tropism.core.spaces.box import Box
from tropism.core.spaces.discrete import Discrete, MultiBinary, MultiDiscrete
from tropism.core.spaces.space import Space, is_traced, object_schema, tuple_schema
from tropism.errors import ValidationError


class Dict(Space):
    """Mappings with exactly these keys, in sorted order."""

    keys_: tuple[str, ...] = eqx.field(static=True)
    values_: tuple[Space, ...]

    def __init__(self, spaces: Mapping[str, Space] | None = None, **more: Space):
        if spaces is not None and not isinstance(spaces, Mapping):
            raise ValidationError("spaces", spaces, "a mapping of names to spaces")
        members = {**(spaces or {}), **more}
        for key, space in members.items():
            if not isinstance(key, str) or not isinstance(space, Space):
                raise ValidationError(f"spaces[{key!r}]", space, "a string name and a Space")
        self.keys_ = tuple(sorted(members))
        self.values_ = tuple(members[key] for key in self.keys_)

    @property
    def spaces(self) -> dict[str, Space]:
        return dict(zip(self.keys_, self.values_, strict=True))

    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> dict[str, Any]:
        keys = random.split(key, max(1, len(self.keys_)))
        return {name: space.sample(k, shape) for (name, space), k in zip(self.spaces.items(), keys, strict=False)}

    def contains(self, x: Any) -> Any:
        if not isinstance(x, Mapping) or set(x) != set(self.keys_):
            return False
        return _all([space.contains(x[name]) for name, space in self.spaces.items()])

    def coerce(self, x: Any, name: str = "action") -> dict[str, Any]:
        self._check_keys(x, name)
        return {key: space.coerce(x[key], f"{name}[{key!r}]") for key, space in self.spaces.items()}

    def to_json(self, x: Any) -> dict[str, Any]:
        return {key: space.to_json(x[key]) for key, space in self.spaces.items()}

    def from_json(self, data: Any, name: str = "action") -> dict[str, Any]:
        self._check_keys(data, name)
        return {key: space.from_json(data[key], f"{name}[{key!r}]") for key, space in self.spaces.items()}

    def json_schema(self) -> dict[str, Any]:
        return object_schema({key: space.json_schema() for key, space in self.spaces.items()}, list(self.keys_))

    def _check_keys(self, x: Any, name: str) -> None:
        if not isinstance(x, Mapping) or set(x) != set(self.keys_):
            raise ValidationError(name, x, f"a dict with the keys {', '.join(self.keys_)}")

    def identity(self) -> tuple[Any, ...]:
        return self.keys_, self.values_

    def __getitem__(self, key: str) -> Space:
        return self.spaces[key]

    def __repr__(self) -> str:
        return f"Dict({', '.join(f'{key}={space!r}' for key, space in self.spaces.items())})"


class Tuple(Space):
    """Tuples with one member of each space, in order."""

    spaces: tuple[Space, ...]

    def __init__(self, spaces: Any):
        if not isinstance(spaces, tuple | list) or not all(isinstance(space, Space) for space in spaces):
            raise ValidationError("spaces", spaces, "a tuple of spaces")
        self.spaces = tuple(spaces)

    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> tuple[Any, ...]:
        keys = random.split(key, max(1, len(self.spaces)))
        return tuple(space.sample(k, shape) for space, k in zip(self.spaces, keys, strict=False))

    def contains(self, x: Any) -> Any:
        if not isinstance(x, tuple | list) or len(x) != len(self.spaces):
            return False
        return _all([space.contains(item) for space, item in zip(self.spaces, x, strict=True)])

    def coerce(self, x: Any, name: str = "action") -> tuple[Any, ...]:
        self._check_length(x, name)
        return tuple(
            space.coerce(item, f"{name}[{i}]") for i, (space, item) in enumerate(zip(self.spaces, x, strict=True))
        )

    def to_json(self, x: Any) -> list[Any]:
        return [space.to_json(item) for space, item in zip(self.spaces, x, strict=True)]

    def from_json(self, data: Any, name: str = "action") -> tuple[Any, ...]:
        self._check_length(data, name)
        return tuple(
            space.from_json(item, f"{name}[{i}]") for i, (space, item) in enumerate(zip(self.spaces, data, strict=True))
        )

    def json_schema(self) -> dict[str, Any]:
        return tuple_schema([space.json_schema() for space in self.spaces])

    def _check_length(self, x: Any, name: str) -> None:
        if not isinstance(x, tuple | list) or len(x) != len(self.spaces):
            raise ValidationError(name, x, f"a tuple of {len(self.spaces)} items")

    def identity(self) -> tuple[Any, ...]:
        return self.spaces

    def __getitem__(self, index: int) -> Space:
        return self.spaces[index]

    def __repr__(self) -> str:
        return f"Tuple({', '.join(repr(space) for space in self.spaces)})"


def stack_space(space: Space, size: int) -> Space:
    """The space of `size` stacked members of a space of arrays."""
    match space:
        case Discrete():
            return MultiDiscrete(np.full(size, space.n), np.full(size, space.start))
        case MultiDiscrete():
            return MultiDiscrete(_repeat(space.nvec, size), _repeat(space.start, size))
        case MultiBinary():
            return MultiBinary((size, *space.shape), space.dtype)
        case Box():
            return Box(_repeat(space.low, size), _repeat(space.high, size), (size, *space.shape), space.dtype)
        case Dict():
            return Dict({name: stack_space(part, size) for name, part in space.spaces.items()})
        case Tuple():
            return Tuple([stack_space(part, size) for part in space.spaces])
        case _:
            raise ValidationError(
                "space", space, "Discrete, MultiDiscrete, MultiBinary, Box, or a Dict or Tuple of them"
            )


def _repeat(array: Any, size: int) -> Any:
    return (jnp if is_traced(array) else np).broadcast_to(array, (size, *np.shape(array)))


def leaf_spaces(space: Space) -> list[Space]:
    """The spaces of the parts of a Dict or Tuple, at any depth; of another space, itself."""
    return jax.tree.leaves(space, is_leaf=lambda part: isinstance(part, Space) and not isinstance(part, Dict | Tuple))


def leaf_values(space: Space, x: Any, name: str) -> list[tuple[str, Space, Any]]:
    """The name, space and value of the parts of a Dict or Tuple value, as far as it has the parts of its space."""
    if isinstance(space, Dict) and isinstance(x, Mapping) and set(x) == set(space.spaces):
        parts = [(f"{name}[{key!r}]", part, x[key]) for key, part in space.spaces.items()]
    elif isinstance(space, Tuple) and isinstance(x, tuple) and len(x) == len(space.spaces):
        parts = [(f"{name}[{i}]", part, value) for i, (part, value) in enumerate(zip(space.spaces, x, strict=True))]
    else:
        return [(name, space, x)]
    return [leaf for part_name, part, value in parts for leaf in leaf_values(part, value, part_name)]


def _all(answers: list[Any]) -> Any:
    if not is_traced(*answers):
        return all(answers)
    result = answers[0]
    for answer in answers[1:]:
        result = result & answer
    return result
