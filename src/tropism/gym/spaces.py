"""Conversion of spaces to Gymnasium and back, and of values where the two differ."""

import copy
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

import gymnasium
import numpy as np
from gymnasium import spaces

from tropism.core.spaces import Box, Dict, Discrete, Model, MultiBinary, MultiDiscrete, Record, Space, Text, Tuple
from tropism.core.spaces.hints import SAMPLED_LENGTH
from tropism.core.spaces.message import DEFAULT_TEXT_LENGTH
from tropism.errors import ValidationError

GymSpace = gymnasium.Space[Any]
INT64 = np.iinfo(np.int64)


class AnyText(spaces.Text):
    """Strings of any characters; samples are short and contain letters and digits."""

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        if mask is None and probability is None:
            longest = max(self.min_length, min(self.max_length, SAMPLED_LENGTH))
            mask = (int(self.np_random.integers(self.min_length, longest + 1)), None)
        # Gymnasium 0.29 has no probabilities.
        return super().sample(mask) if probability is None else super().sample(mask, probability)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText) and super().__eq__(other)

    def __repr__(self) -> str:
        return f"AnyText({self.min_length}, {self.max_length})"


class OneOf(AnyText):
    """One of the strings `words`."""

    def __init__(self, words: tuple[str, ...]):
        super().__init__(max(len(word) for word in words), min_length=0)
        self.words = words

    def contains(self, x: Any) -> bool:
        return x in self.words

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return self.words[int(self.np_random.integers(len(self.words)))]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OneOf) and self.words == other.words

    def __repr__(self) -> str:
        return f"OneOf{self.words}"


class AnyValue(gymnasium.Space[Any]):
    """Values of a Python type that Gymnasium has no space for."""

    def __init__(self, kind: type):
        super().__init__()
        self.kind = kind

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def contains(self, x: Any) -> bool:
        return isinstance(x, self.kind)

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return None if self.kind is object else self.kind()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyValue) and self.kind is other.kind

    def __repr__(self) -> str:
        return f"AnyValue({self.kind.__name__})"


def to_gymnasium_space(space: Space) -> GymSpace:
    """The Gymnasium space with the same members; a Record becomes the Dict of its fields."""
    match space:
        case Discrete():
            return spaces.Discrete(space.n, start=space.start)
        case MultiDiscrete():
            return spaces.MultiDiscrete(space.nvec.copy(), dtype=space.dtype.type, start=space.start.copy())
        case MultiBinary():
            return spaces.MultiBinary(space.shape if len(space.shape) > 1 else space.n)
        case Box():
            return spaces.Box(np.array(space.low), np.array(space.high), space.shape, space.dtype.type)
        case Dict():
            return spaces.Dict({name: to_gymnasium_space(part) for name, part in space.spaces.items()})
        case Tuple():
            return spaces.Tuple([to_gymnasium_space(part) for part in space.spaces])
        case Text(charset=None):
            return AnyText(space.max_length, min_length=space.min_length)
        case Text():
            return spaces.Text(space.max_length, min_length=space.min_length, charset=str(space.charset))
        case Record() | Model():
            return spaces.Dict(_field_spaces(space))
        case _:
            raise ValidationError("space", space, "one of Tropism's spaces")


def from_gymnasium_space(space: GymSpace) -> Space:
    """The Tropism space with the same members."""
    match space:
        case spaces.Discrete():
            return Discrete(int(space.n), int(space.start))
        case spaces.MultiDiscrete():
            return MultiDiscrete(space.nvec, space.start)
        case spaces.MultiBinary():
            return MultiBinary(space.shape)
        case spaces.Box():
            return Box(space.low, space.high, space.shape, space.dtype)
        case spaces.Dict():
            return Dict({name: from_gymnasium_space(part) for name, part in space.spaces.items()})
        case spaces.Tuple():
            return Tuple([from_gymnasium_space(part) for part in space.spaces])
        case AnyText():
            return Text(space.max_length, space.min_length)
        case spaces.Text():
            return Text(space.max_length, space.min_length, space.characters)
        case _:
            raise ValidationError("space", space, "Box, Discrete, MultiDiscrete, MultiBinary, Text, Dict or Tuple")


Convert = Callable[[Any], Any]


def to_gym_value(space: Space) -> Convert | None:
    """The conversion from a member of `space` to its Gymnasium space; None if they are the same."""
    if isinstance(space, Record):
        return lambda x: _bools_to_ints(_to_plain(x))
    if isinstance(space, Model):
        return lambda x: _bools_to_ints(_to_plain(x.model_dump()))
    return _convert_members(space, to_gym_value)


def _bools_to_ints(record: dict[str, Any]) -> dict[str, Any]:
    """A boolean field is a member of Discrete(2), so an integer."""
    return {name: np.int64(value) if isinstance(value, bool) else value for name, value in record.items()}


def from_gym_value(space: Space) -> Convert | None:
    """The conversion from a member of the Gymnasium space to one that `space` accepts; None if they are the same."""
    if isinstance(space, Record | Model):
        bool_fields = _bool_fields(space)
        return lambda x: {name: _to_scalar(x[name], name in bool_fields) for name in x} if isinstance(x, dict) else x
    return _convert_members(space, from_gym_value)


def _convert_members(space: Space, convert: Callable[[Space], Convert | None]) -> Convert | None:
    """The conversion of a composite space, member by member; None if no member needs one."""
    if isinstance(space, Dict):
        by_name = {name: convert(part) for name, part in space.spaces.items()}
        if any(by_name.values()):
            return lambda x: {name: _apply(by_name.get(name), value) for name, value in x.items()}
    if isinstance(space, Tuple):
        ordered = [convert(part) for part in space.spaces]
        if any(ordered):
            return lambda x: tuple(_apply(part, value) for part, value in zip(ordered, x, strict=True))
    return None


def _apply(convert: Convert | None, value: Any) -> Any:
    return value if convert is None else convert(value)


def _to_plain(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return np.asarray(value, np.int64 if isinstance(value, int) else np.float64)
    if type(value) is dict:
        return {name: _to_plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_to_plain(item) for item in value)
    if is_dataclass(value):
        return {field.name: _to_plain(getattr(value, field.name)) for field in fields(value) if field.init}
    return copy.deepcopy(value)


def _to_scalar(value: Any, is_flag: bool) -> Any:
    if is_flag and isinstance(value, np.integer):  # sampled from Discrete(2)
        return bool(value)
    return value.item() if isinstance(value, np.ndarray | np.generic) and value.shape == () else value


def _bool_fields(space: Record | Model) -> set[str]:
    """The names of boolean fields."""
    if isinstance(space, Record):
        return {name for name, hint in space.hints.items() if hint is bool}
    parts = space.json_schema().get("properties", {})
    return {name for name, part in parts.items() if part.get("type") == "boolean"}


def _field_spaces(space: Record | Model) -> dict[str, GymSpace]:
    if isinstance(space, Record):
        return {name: _field_space(hint) for name, hint in space.hints.items()}
    return {name: _schema_space(part) for name, part in space.json_schema().get("properties", {}).items()}


def _field_space(hint: Any) -> GymSpace:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        space = next((extra for extra in args[1:] if isinstance(extra, Space)), None)
        return _field_space(args[0]) if space is None else to_gymnasium_space(space)
    if hint is str:
        return AnyText(DEFAULT_TEXT_LENGTH, min_length=0)
    if origin is Literal and all(isinstance(arg, str) for arg in args):
        return OneOf(args)
    if isinstance(hint, type) and is_dataclass(hint):
        return spaces.Dict({name: _field_space(part) for name, part in Record(hint).hints.items()})
    if origin is tuple and Ellipsis in args:
        return spaces.Sequence(_field_space(args[0]))
    if hint is bool:
        return spaces.Discrete(2)
    if hint is int:
        return spaces.Box(INT64.min, INT64.max, (), np.int64)
    if hint is float:
        return spaces.Box(-np.inf, np.inf, (), np.float64)
    kind = origin or hint
    return AnyValue(kind if kind in (dict, list, tuple) else object)


def _schema_space(schema: dict[str, Any]) -> GymSpace:
    """The space of a model's field, from its JSON Schema."""
    if all(isinstance(word, str) for word in schema.get("enum", [None])):
        return OneOf(tuple(schema["enum"]))
    kind = schema.get("type", "")
    if kind == "string":
        return AnyText(schema.get("maxLength", DEFAULT_TEXT_LENGTH), min_length=schema.get("minLength", 0))
    if kind in ("integer", "number"):
        low, high, dtype = (INT64.min, INT64.max, np.int64) if kind == "integer" else (-np.inf, np.inf, np.float64)
        return spaces.Box(schema.get("minimum", low), schema.get("maximum", high), (), dtype)
    return _field_space({"boolean": bool, "object": dict, "array": list}.get(kind, object))
