"""Interprets type annotations: checks values, reads JSON, gives the JSON Schema, draws samples."""

import string
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import jax
import numpy as np
from jax import random

from tropism.core.spaces.space import Space, is_integer, object_schema, tuple_schema
from tropism.errors import ValidationError

SAMPLED_LENGTH = 20  # maximum length of a sampled text
UNIONS = (Union, types.UnionType)
PLAIN = frozenset((str, int, float, bool, type(None)))  # the immutable JSON types

Check = Callable[[Any], bool]
Read = Callable[[Any, str], Any]


class RecordField(NamedTuple):
    """A field that the constructor takes; `read` is None if JSON values need no conversion."""

    name: str
    hint: Any
    check: Check
    read: Read | None
    required: bool
    default: Any


@cache
def record_fields(cls: type) -> dict[str, RecordField]:
    """The fields of a dataclass by name, with the functions for their annotations."""
    hints = get_type_hints(cls, include_extras=True)
    return {
        field.name: RecordField(
            field.name,
            hints[field.name],
            checker(hints[field.name]),
            reader(hints[field.name]),
            field.default is MISSING and field.default_factory is MISSING,
            field.default_factory() if field.default_factory is not MISSING else field.default,
        )
        for field in fields(cls)
        if field.init
    }


def build_record(cls: type, data: Any, name: str) -> Any:
    """An instance of the dataclass from a mapping of its fields, which may be plain JSON."""
    if type(data) is not dict and not isinstance(data, Mapping):
        raise ValidationError(name, data, f"a {cls.__name__} or a dict of its fields")
    known = record_fields(cls)
    if not data.keys() <= known.keys():
        unknown = min(str(key) for key in data if key not in known)
        raise ValidationError(name, unknown, f"a field of {cls.__name__}: {', '.join(known)}")
    values: dict[str, Any] = {}
    for field, hint, matches, read, required, _ in known.values():
        if field in data:
            value = data[field] if read is None else read(data[field], f"{name}.{field}")
            if not matches(value):
                raise _field_error(field, hint, value, name)
            values[field] = value
        elif required:
            raise ValidationError(name, dict(data), f"the field {field!r} of {cls.__name__}")
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:  # raised by the class itself
        raise ValidationError(name, dict(data), f"a {cls.__name__} ({error})") from error


def check_field(field: RecordField, value: Any, name: str) -> None:
    if not field.check(value):
        raise _field_error(field.name, field.hint, value, name)


def _field_error(field: str, hint: Any, value: Any, name: str) -> ValidationError:
    return ValidationError(f"{name}.{field}", value, format_hint(hint))


def to_json(value: Any) -> Any:
    """A value as plain JSON: dataclasses are objects, arrays and tuples are lists."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if is_dataclass(value):
        return {name: to_json(getattr(value, name)) for name in record_fields(type(value))}
    return np.asarray(value).tolist() if isinstance(value, np.ndarray | np.generic | jax.Array) else value


def checker(hint: Any) -> Check:
    """A function that checks whether a value matches the annotation."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        space = _space(args)
        return checker(args[0]) if space is None else lambda x: bool(space.contains(x))
    if origin is Literal:
        return lambda x: any(type(x) is type(arg) and x == arg for arg in args)
    if origin in UNIONS:
        checks = [checker(arg) for arg in args]
        return lambda x: any(check(x) for check in checks)
    if origin in (list, tuple, dict):
        return _container_checker(origin, args)
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda x: type(x) is hint and all(f.check(getattr(x, f.name)) for f in record_fields(hint).values())
    kind = origin or hint
    scalar: dict[Any, Check] = {int: is_integer, float: _is_real, None: _is_none, Any: _is_any}
    return scalar[kind] if kind in scalar else (lambda x: isinstance(x, kind)) if isinstance(kind, type) else _is_any


def _container_checker(origin: Any, args: tuple[Any, ...]) -> Check:
    if origin is dict:
        key, value = checker(args[0]), checker(args[1])
        return lambda x: isinstance(x, dict) and all(key(k) and value(v) for k, v in x.items())
    checks = [checker(arg) for arg in args if arg is not Ellipsis]
    if origin is list or Ellipsis in args:
        return lambda x: isinstance(x, list | tuple) and all(checks[0](item) for item in x)
    return lambda x: (
        isinstance(x, list | tuple)
        and len(x) == len(checks)
        and all(check(item) for check, item in zip(checks, x, strict=True))
    )


def _is_real(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and x == x


def _is_none(x: Any) -> bool:
    return x is None


def _is_any(_: Any) -> bool:
    return True


def reader(hint: Any) -> Read | None:
    """A function that converts a JSON value; values that it cannot convert are left to the check."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        space = _space(args)
        return reader(args[0]) if space is None else lambda x, name: space.from_json(x, name)
    if origin in UNIONS:
        return _union_reader(args)
    if origin is tuple and Ellipsis not in args:
        items = [reader(arg) or _identity for arg in args]
        return lambda x, name: (
            tuple(read(value, f"{name}[{i}]") for i, (read, value) in enumerate(zip(items, x, strict=True)))
            if isinstance(x, list | tuple) and len(x) == len(items)
            else x
        )
    if origin in (list, tuple):
        item = reader(args[0]) or _identity
        return lambda x, name: (
            origin(item(value, f"{name}[{i}]") for i, value in enumerate(x)) if isinstance(x, list | tuple) else x
        )
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda x, name: build_record(hint, x, name) if isinstance(x, Mapping) else x
    return None


def _union_reader(args: tuple[Any, ...]) -> Read | None:
    alternatives = [(checker(arg), reader(arg)) for arg in args]
    if not any(read for _, read in alternatives):
        return None

    def read_union(x: Any, name: str) -> Any:
        for check, read in alternatives:
            try:
                value = x if read is None else read(x, name)
            except ValidationError:
                continue
            if check(value):
                return value
        return x

    return read_union


def _identity(x: Any, _: str) -> Any:
    return x


def schema(hint: Any) -> dict[str, Any]:
    """The JSON Schema of values that match the annotation."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        space = _space(args)
        return schema(args[0]) if space is None else space.json_schema()
    if origin is Literal:
        return {"enum": list(args)}
    if origin in UNIONS:
        return {"anyOf": [schema(arg) for arg in args]}
    if origin in (list, tuple) and (origin is list or Ellipsis in args):
        return {"type": "array", "items": schema(args[0])}
    if origin is tuple:
        return tuple_schema([schema(arg) for arg in args])
    if origin is dict:
        return {"type": "object", "additionalProperties": schema(args[1])}
    if isinstance(hint, type) and is_dataclass(hint):
        return record_schema(hint)
    names = {str: "string", int: "integer", float: "number", bool: "boolean", None: "null", type(None): "null"}
    names |= {dict: "object", list: "array", tuple: "array"}
    return {"type": names[hint]} if hint in names else {}


def record_schema(cls: type) -> dict[str, Any]:
    known = record_fields(cls)
    properties = {name: schema(field.hint) for name, field in known.items()}
    for name, field in known.items():
        if not field.required:
            properties[name] = {**properties[name], "default": to_json(field.default)}
    required = [name for name, field in known.items() if field.required]
    return object_schema(properties, required) | {"title": cls.__name__}


def sample(hint: Any, rng: np.random.Generator) -> Any:
    """A random value that matches the annotation; collections of variable length are empty."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        space = _space(args)
        return sample(args[0], rng) if space is None else space.sample(random.key(int(rng.integers(2**31))))
    if origin is Literal:
        return args[int(rng.integers(len(args)))]
    if origin in UNIONS:
        return sample(args[0], rng)
    if origin is tuple and Ellipsis not in args:
        return tuple(sample(arg, rng) for arg in args)
    if isinstance(hint, type) and is_dataclass(hint):
        return hint(**{name: sample(field.hint, rng) for name, field in record_fields(hint).items()})
    samples = {
        str: lambda: "".join(rng.choice(list(string.ascii_letters), SAMPLED_LENGTH)),
        bool: lambda: bool(rng.integers(2)),
        int: lambda: int(rng.integers(100)),
        float: lambda: float(rng.normal()),
        list: list,
        tuple: tuple,
        dict: dict,
    }
    kind = origin or hint
    return samples[kind]() if kind in samples else None


def format_hint(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def _space(args: tuple[Any, ...]) -> Space | None:
    """The space among the metadata of an `Annotated`."""
    return next((extra for extra in args[1:] if isinstance(extra, Space)), None)
