"""How the values of a space lie in a column: numbers and arrays as they are, messages as JSON text."""

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
    """Writes values into one column and reads them back, without the environment they came from."""

    @abstractmethod
    def type(self) -> pa.DataType:
        """What Arrow calls it."""

    @abstractmethod
    def write(self, value: Any) -> Any:
        """The value as pyarrow takes it; equal values are written alike, bit for bit."""

    def unpack(self, data: Any) -> Any:
        """What was written, from msgpack, where arrays are bytes."""
        return data

    @abstractmethod
    def stack(self, array: Any) -> Any:
        """The values of many rows: an array where they are numbers, a list otherwise."""

    def pick(self, stacked: Any, index: int) -> Any:
        """One of the values that were stacked."""
        return stacked[index]

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """This column as JSON; `column` reads it."""


@dataclass(frozen=True)
class Numbers(Column):
    """A number (where the shape is empty) or an array, flat in its list; rows first when stacked."""

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
class Words(Column):
    """A string."""

    def type(self) -> pa.DataType:
        return pa.string()

    def write(self, value: Any) -> str:
        return str(value)

    def stack(self, array: Any) -> list[str]:
        return array.to_pylist()

    def describe(self) -> dict[str, Any]:
        return {"kind": "words"}


@dataclass(frozen=True)
class Json(Column):
    """A message, or whatever else has no better form, as JSON text."""

    def type(self) -> pa.DataType:
        return pa.string()

    def write(self, value: Any) -> str:
        return dumps(value)

    def stack(self, array: Any) -> list[Any]:
        return [json.loads(text) for text in array.to_pylist()]

    def describe(self) -> dict[str, Any]:
        return {"kind": "json"}


@dataclass(frozen=True)
class Parts(Column):
    """A struct with a field for each part of a Dict or Tuple; stacked part by part."""

    names: tuple[str, ...]
    columns: tuple[Column, ...]
    ordered: bool  # a tuple, whose parts are named "0", "1", …

    def items(self) -> Iterator[tuple[Any, str, Column]]:
        """Of each part, where it is in a value, its name, and its column."""
        keys = range(len(self.names)) if self.ordered else self.names
        return zip(keys, self.names, self.columns, strict=True)

    def type(self) -> pa.DataType:
        return pa.struct([(name, column.type()) for _, name, column in self.items()])

    def write(self, value: Any) -> dict[str, Any]:
        return {name: column.write(value[key]) for key, name, column in self.items()}

    def unpack(self, data: Any) -> Any:
        return {name: column.unpack(data[name]) for _, name, column in self.items()}

    def stack(self, array: Any) -> Any:
        return self._joined([column.stack(part) for column, part in zip(self.columns, array.flatten(), strict=True)])

    def pick(self, stacked: Any, index: int) -> Any:
        return self._joined([column.pick(stacked[key], index) for key, _, column in self.items()])

    def _joined(self, parts: list[Any]) -> Any:
        return tuple(parts) if self.ordered else dict(zip(self.names, parts, strict=True))

    def describe(self) -> dict[str, Any]:
        parts = {name: column.describe() for _, name, column in self.items()}
        return {"kind": "tuple" if self.ordered else "dict", "parts": parts}


def column_of(space: Space) -> Column:
    """The column that holds members of this space."""
    match space:
        case Discrete():
            return Numbers(INT64, ())
        case Box() | MultiBinary() | MultiDiscrete() if _has_arrow_type(space):
            return Numbers(np.dtype(space.dtype), tuple(space.shape))
        case Text():
            return Words()
        case Dict() if space.keys_:
            return Parts(space.keys_, tuple(column_of(part) for part in space.values_), False)
        case Tuple() if space.spaces:
            names = tuple(str(number) for number in range(len(space.spaces)))
            return Parts(names, tuple(column_of(part) for part in space.spaces), True)
        case _:
            return Json()


def _has_arrow_type(space: Any) -> bool:
    """Not bfloat16 and its like, nor an array without entries, which Parquet has no lists for."""
    return space.dtype.isbuiltin == 1 and 0 not in space.shape


def column(description: Mapping[str, Any]) -> Column:
    """The column that `describe` described."""
    match description:
        case {"kind": "numbers", "dtype": dtype, "shape": shape}:
            return Numbers(np.dtype(dtype), tuple(shape))
        case {"kind": "words"}:
            return Words()
        case {"kind": "json"}:
            return Json()
        case {"kind": "dict" | "tuple" as kind, "parts": parts}:
            return Parts(tuple(parts), tuple(column(part) for part in parts.values()), kind == "tuple")
        case _:
            raise ValidationError("column", dict(description), "one of numbers, words, json, dict, tuple")


def dumps(value: Any) -> str:
    """JSON text; what JSON has no form for is written as the name of its type, which at least repeats."""
    dump = getattr(value, "model_dump", None)  # pydantic's, of a stranger's class
    return json.dumps(
        dump(mode="json") if callable(dump) else to_json(value), default=lambda x: f"<{x.__class__.__name__}>"
    )


def same(one: Any, other: Any) -> bool:
    """Whether two written values are equal bit for bit (NaN too)."""
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, str):
        return one == other
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()
