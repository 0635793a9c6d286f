"""The base class of spaces, and helpers for them."""

import json
from abc import abstractmethod
from functools import cache
from importlib.metadata import entry_points
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpy.typing import NDArray

from tropism.core.module import Module
from tropism.errors import ValidationError

CONVERTERS = "tropism.space_converters"  # the group of entry points


class Space(Module):
    """A set of values: immutable, hashable, equal by value."""

    def __str__(self) -> str:
        return repr(self)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """None if the members are not arrays."""
        return None

    @property
    def dtype(self) -> np.dtype[Any] | None:
        return None

    @abstractmethod
    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        """A random member, always contained; with `shape`, stacked members of that leading shape."""

    @abstractmethod
    def contains(self, x: Any) -> Any:
        """Whether `x` is a member: a bool for any object, a traced bool for a tracer."""

    @abstractmethod
    def coerce(self, x: Any, name: str = "action") -> Any:
        """`x` as a host value of this space; a ValidationError with `name` if it is not a member."""

    @abstractmethod
    def identity(self) -> tuple[Any, ...]:
        """The values that define equality and hash."""

    @abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema (2020-12) of what `to_json` writes and `from_json` reads."""

    def to_json(self, x: Any) -> Any:
        """A member as plain JSON values."""
        return np.asarray(x).tolist()

    def from_json(self, data: Any, name: str = "action") -> Any:
        """The member that `to_json` wrote, checked."""
        return self.coerce(data, name)

    def from_text(self, text: str, name: str = "action") -> Any:
        """The member written as JSON in `text`."""
        try:
            data = json.loads(text)
        except ValueError:
            raise ValidationError(name, text, f"{self!r} written as JSON") from None
        return self.from_json(data, name)

    def to_gymnasium(self) -> Any:
        """The equal `gymnasium.spaces` space (needs the extra `gym`)."""
        return _gymnasium_converter()(self)

    def __contains__(self, x: Any) -> bool:
        return bool(self.contains(x))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.identity() == other.identity()  # pyright: ignore

    def __hash__(self) -> int:
        return hash((type(self), self.identity()))


@cache
def _gymnasium_converter() -> Any:
    """A plugin of the package, because core does not depend on Gymnasium."""
    (converter,) = entry_points(group=CONVERTERS, name="gymnasium")
    return converter.load()


def array_schema(item: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Nested JSON arrays of this shape."""
    for size in reversed(shape):
        item = {"type": "array", "items": item, "minItems": size, "maxItems": size}
    return item


def object_schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def tuple_schema(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items), "maxItems": len(items)}


def is_traced(*values: Any) -> bool:
    return any(isinstance(value, Tracer) for value in values)


def as_array(x: Any) -> NDArray[Any] | None:
    """`x` as a NumPy array of real numbers, or None if it is not one."""
    if isinstance(x, str | bytes | dict | set) or x is None:
        return None
    try:
        array = np.asarray(x)
    except (ValueError, TypeError, OverflowError, RuntimeError):
        return None
    return array if array.dtype.kind in "biuf" or _is_small_float(array.dtype) else None


def _is_small_float(dtype: np.dtype[Any]) -> bool:
    return dtype.name.startswith(("bfloat", "float8"))


def check_count(name: str, value: Any, least: int = 1) -> int:
    """`value` as an int; a ValidationError unless it is a whole number of at least `least`."""
    if not is_integer(value) or int(value) < least:
        raise ValidationError(name, value, f"a whole number of at least {least}")
    return int(value)


def check_option(name: str, value: Any, literal: Any) -> None:
    """Raise a ValidationError unless the value is one of those of a Literal."""
    if value not in get_args(literal):
        raise ValidationError(name, value, f"one of {', '.join(get_args(literal))}")


def is_integer(x: Any) -> bool:
    """True for ints, NumPy integers and 0-d integer arrays; not for bools or whole floats."""
    if isinstance(x, bool | np.bool_):
        return False
    if isinstance(x, int | np.integer):
        return True
    return isinstance(x, np.ndarray | jax.Array) and x.shape == () and jnp.issubdtype(x.dtype, np.integer)
