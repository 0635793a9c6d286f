"""Spaces of the host world: Text, and Record for typed messages."""

import string
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import equinox as eqx
import numpy as np
from jax import random

from tropism.core.spaces.space import Space, is_integer
from tropism.errors import ValidationError

SAMPLED_LENGTH = 20  # a sampled text is short, whatever the limit
DEFAULT_TEXT_LENGTH = 2**20


class Text(Space):
    """Strings of `min_length` to `max_length` characters, of `charset` where one is given."""

    max_length: int = eqx.field(static=True)
    min_length: int = eqx.field(static=True)
    charset: str | None = eqx.field(static=True)

    def __init__(self, max_length: Any, min_length: Any = 0, charset: str | None = None):
        for name, length in (("max_length", max_length), ("min_length", min_length)):
            if not is_integer(length) or int(length) < 0:
                raise ValidationError(name, length, "a whole number of at least 0")
        if min_length > max_length:
            raise ValidationError("min_length", min_length, f"at most max_length, {max_length}")
        if charset is not None and (not isinstance(charset, str) or not charset):
            raise ValidationError("charset", charset, "a non-empty string of allowed characters, or None for any")
        self.max_length = int(max_length)
        self.min_length = int(min_length)
        self.charset = charset

    @property
    def shape(self) -> None:
        return None

    @property
    def dtype(self) -> None:
        return None

    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> str:
        _check_single(self, shape)
        rng = np.random.default_rng(_entropy(key))
        length = rng.integers(self.min_length, max(self.min_length, min(self.max_length, SAMPLED_LENGTH)) + 1)
        letters = list(self.charset or string.ascii_letters + string.digits + " ")
        return "".join(rng.choice(letters, int(length)))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length and self._spelled(x)

    def _spelled(self, x: str) -> bool:
        return self.charset is None or set(x) <= set(self.charset)

    def coerce(self, x: Any, name: str = "action") -> str:
        if not self.contains(x):
            raise ValidationError(name, x, f"a string in {self!r}")
        return str(x)

    def to_json(self, x: Any) -> str:
        return x

    def from_text(self, text: str, name: str = "action") -> str:
        return self.coerce(text, name)

    def identity(self) -> tuple[Any, ...]:
        return self.max_length, self.min_length, self.charset

    def __repr__(self) -> str:
        return f"Text({self.min_length}…{self.max_length})"


class Record(Space):
    """Instances of a frozen dataclass; a plain dict with its fields is accepted at the edge."""

    cls: type = eqx.field(static=True)

    def __init__(self, cls: Any):
        if not isinstance(cls, type) or not is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # pyright: ignore
            raise ValidationError("cls", cls, "a frozen dataclass")
        self.cls = cls

    @property
    def shape(self) -> None:
        return None

    @property
    def dtype(self) -> None:
        return None

    @property
    def hints(self) -> dict[str, Any]:
        """The annotation of each field that the constructor takes."""
        hints = get_type_hints(self.cls, include_extras=True)
        return {field.name: hints[field.name] for field in fields(self.cls) if field.init}

    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        _check_single(self, shape)
        rng = np.random.default_rng(_entropy(key))
        return self.cls(**{name: _sample_hint(hint, rng) for name, hint in self.hints.items()})

    def contains(self, x: Any) -> bool:
        return type(x) is self.cls and all(_fits(getattr(x, name), hint) for name, hint in self.hints.items())

    def coerce(self, x: Any, name: str = "action") -> Any:
        if isinstance(x, Mapping):
            x = self._build(x, name)
        if type(x) is not self.cls:
            raise ValidationError(name, x, f"a {self.cls.__name__} or a dict of its fields")
        for field, hint in self.hints.items():
            if not _fits(getattr(x, field), hint):
                raise ValidationError(f"{name}.{field}", getattr(x, field), _spell(hint))
        return x

    def _build(self, data: Mapping[str, Any], name: str) -> Any:
        unknown = sorted(str(key) for key in data if key not in self.hints)
        if unknown:
            raise ValidationError(name, unknown[0], f"a field of {self.cls.__name__}: {', '.join(self.hints)}")
        for field in fields(self.cls):
            if field.init and field.name not in data and field.default is MISSING and field.default_factory is MISSING:
                raise ValidationError(name, dict(data), f"the field {field.name!r} of {self.cls.__name__}")
        return self.cls(**data)

    def to_json(self, x: Any) -> dict[str, Any]:
        return asdict(x)

    def identity(self) -> tuple[Any, ...]:
        return (self.cls,)

    def __repr__(self) -> str:
        return f"Record({self.cls.__name__})"


def _check_single(space: Space, shape: tuple[int, ...]) -> None:
    if shape:
        raise ValidationError("shape", shape, f"(): {space!r} has no arrays to stack")


def _entropy(key: Any) -> list[int]:
    if is_integer(key):
        return [int(key)]
    return np.asarray(random.key_data(key)).tolist()


def _fits(value: Any, hint: Any) -> bool:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        space = next((extra for extra in args[1:] if isinstance(extra, Space)), None)
        return _fits(value, args[0]) if space is None else bool(space.contains(value))
    if hint is Any:
        return True
    if origin is Literal:
        return value in args
    if origin in (Union, types.UnionType):
        return any(_fits(value, arg) for arg in args)
    if origin in (tuple, list):
        items = [arg for arg in args if arg is not Ellipsis]
        return isinstance(value, list | tuple) and all(_fits(item, items[0]) for item in value)
    if origin is not None:
        return isinstance(value, origin)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and value == value
    if hint is int:
        return is_integer(value)
    return isinstance(value, hint if hint is not None else type(None))


def _sample_hint(hint: Any, rng: np.random.Generator) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        space = next((extra for extra in args[1:] if isinstance(extra, Space)), None)
        return _sample_hint(args[0], rng) if space is None else space.sample(random.key(int(rng.integers(2**31))))
    if origin is Literal:
        return args[int(rng.integers(len(args)))]
    if origin in (Union, types.UnionType):
        return _sample_hint(args[0], rng)
    if origin in (tuple, list):
        return origin()
    if origin is dict or hint is dict:
        return {}
    samples = {
        str: lambda: "".join(rng.choice(list(string.ascii_letters), SAMPLED_LENGTH)),
        bool: lambda: bool(rng.integers(2)),
        int: lambda: int(rng.integers(100)),
        float: lambda: float(rng.normal()),
    }
    return samples[hint]() if hint in samples else None


def _spell(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
