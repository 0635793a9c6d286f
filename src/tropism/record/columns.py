"""Arrow columns for the values of a space: numbers and arrays natively, messages as JSON text."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tropism.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from tropism.core.spaces.hints import to_json
from tropism.errors import ValidationError

INT64 = np.dtype(np.int64)


class Column(ABC):
    """Converts values to and from one column, independent of the environment."""

    @abstractmethod
    def type(self) -> pa.DataType:
        """The Arrow type."""

    @abstractmethod
    def write(self, value: Any) -> Any:
        """The value as pyarrow expects it; equal values give identical bits."""

    def unpack(self, data: Any) -> Any:
        """A written value decoded from msgpack, where arrays are bytes."""
        return data

    @abstractmethod
    def stack(self, array: Any) -> Any:
        """The values of many rows: an array of numbers, or a list."""

    def pick(self, stacked: Any, index: int) -> Any:
        """One of the stacked values."""
        return stacked[index]

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """This column as JSON, the inverse of `column_from_json`."""


@dataclass(frozen=True)
class NumericColumn(Column):
    """A number (empty shape), or an array stored as a flat list; stacked along the first axis."""

    dtype: Any
    shape: tuple[int, ...]

    def type(self) -> pa.DataType:
        item = pa.from_numpy_dtype(self.dtype)
        return pa.list_(item, int(np.prod(self.shape))) if self.shape else item

    def write(self, value: Any) -> Any:
        array = np.asarray(value)
        if array.shape != self.shape:
            raise ValidationError("value", value, f"an array of shape {self.shape}")
        if not self.shape:
            return self.dtype.type(array).item()
        return array.astype(self.dtype, copy=False).ravel()

    def unpack(self, data: Any) -> Any:
        return np.frombuffer(data, self.dtype) if self.shape else data

    def stack(self, array: Any) -> Any:
        flat = array.flatten() if self.shape else array
        return flat.to_numpy(zero_copy_only=False).astype(self.dtype, copy=False).reshape(len(array), *self.shape)

    def describe(self) -> dict[str, Any]:
        return {"kind": "numbers", "dtype": self.dtype.name, "shape": list(self.shape)}


@dataclass(frozen=True)
class TextColumn(Column):
    """A string."""

    def type(self) -> pa.DataType:
        return pa.string()

    def write(self, value: Any) -> str:
        return str(value)

    def stack(self, array: Any) -> list[str]:
        return array.to_pylist()

    def describe(self) -> dict[str, Any]:
        return {"kind": "text"}


@dataclass(frozen=True)
class JsonColumn(TextColumn):
    """Messages and other values without an Arrow type, as JSON text."""

    def write(self, value: Any) -> str:
        return dumps(value)

    def stack(self, array: Any) -> list[Any]:
        return [json.loads(text) for text in array.to_pylist()]

    def describe(self) -> dict[str, Any]:
        return {"kind": "json"}


@dataclass(frozen=True)
class StructColumn(Column):
    """A struct with a field per part of a Dict or Tuple; stacked part by part."""

    names: tuple[str, ...]
    columns: tuple[Column, ...]
    ordered: bool  # a tuple, with fields "0", "1", …

    def items(self) -> Iterator[tuple[Any, str, Column]]:
        """`(key in the value, field name, column)` of each part."""
        keys = range(len(self.names)) if self.ordered else self.names
        return zip(keys, self.names, self.columns, strict=True)

    def type(self) -> pa.DataType:
        return pa.struct([(name, column.type()) for _, name, column in self.items()])

    def write(self, value: Any) -> dict[str, Any]:
        return {name: column.write(value[key]) for key, name, column in self.items()}

    def unpack(self, data: Any) -> Any:
        return {name: column.unpack(data[name]) for _, name, column in self.items()}

    def stack(self, array: Any) -> Any:
        return self._combine([column.stack(part) for column, part in zip(self.columns, array.flatten(), strict=True)])

    def pick(self, stacked: Any, index: int) -> Any:
        return self._combine([column.pick(stacked[key], index) for key, _, column in self.items()])

    def _combine(self, parts: list[Any]) -> Any:
        return tuple(parts) if self.ordered else dict(zip(self.names, parts, strict=True))

    def describe(self) -> dict[str, Any]:
        parts = {name: column.describe() for _, name, column in self.items()}
        return {"kind": "tuple" if self.ordered else "dict", "parts": parts}


def column_of(space: Space) -> Column:
    """The column for members of this space."""
    match space:
        case Discrete():
            return NumericColumn(INT64, ())
        case Box() | MultiBinary() | MultiDiscrete() if _has_arrow_type(space):
            return NumericColumn(np.dtype(space.dtype), tuple(space.shape))
        case Text():
            return TextColumn()
        case Dict() if space.keys_:
            return StructColumn(space.keys_, tuple(column_of(part) for part in space.values_), False)
        case Tuple() if space.spaces:
            names = tuple(str(number) for number in range(len(space.spaces)))
            return StructColumn(names, tuple(column_of(part) for part in space.spaces), True)
        case _:
            return JsonColumn()


def _has_arrow_type(space: Any) -> bool:
    """False for bfloat16 and similar dtypes, and for empty arrays, which Parquet lists cannot hold."""
    return space.dtype.isbuiltin == 1 and 0 not in space.shape


def column_from_json(description: Mapping[str, Any]) -> Column:
    """The column that `describe` returned."""
    match description:
        case {"kind": "numbers", "dtype": dtype, "shape": shape}:
            return NumericColumn(np.dtype(dtype), tuple(shape))
        case {"kind": "text"}:
            return TextColumn()
        case {"kind": "json"}:
            return JsonColumn()
        case {"kind": "dict" | "tuple" as kind, "parts": parts}:
            return StructColumn(tuple(parts), tuple(column_from_json(part) for part in parts.values()), kind == "tuple")
        case _:
            raise ValidationError("column", dict(description), "one of numbers, text, json, dict, tuple")


def dumps(value: Any) -> str:
    """JSON text; values that JSON cannot represent become the name of their type, which is deterministic."""
    dump = getattr(value, "model_dump", None)  # pydantic's, of a user's class
    return json.dumps(
        dump(mode="json") if callable(dump) else to_json(value), default=lambda x: f"<{x.__class__.__name__}>"
    )


def bitwise_equal(one: Any, other: Any) -> bool:
    """Whether two written values are identical bit for bit, including NaN."""
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(bitwise_equal(one[name], other[name]) for name in one)
    if isinstance(one, str):
        return one == other
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()
