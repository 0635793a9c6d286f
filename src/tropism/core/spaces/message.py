"""Spaces of Python objects: Text, and Record for typed messages."""

import string
from dataclasses import is_dataclass
from typing import Any

import equinox as eqx
import numpy as np
from jax import random

from tropism.core.spaces import hints
from tropism.core.spaces.hints import SAMPLED_LENGTH
from tropism.core.spaces.space import Space, check_count, is_integer
from tropism.errors import ValidationError

DEFAULT_TEXT_LENGTH = 2**20


class Text(Space):
    """Strings of `min_length` to `max_length` characters, from `charset` if given."""

    max_length: int = eqx.field(static=True)
    min_length: int = eqx.field(static=True)
    charset: str | None = eqx.field(static=True)

    def __init__(self, max_length: Any, min_length: Any = 0, charset: str | None = None):
        self.max_length = check_count("max_length", max_length, 0)
        self.min_length = check_count("min_length", min_length, 0)
        if self.min_length > self.max_length:
            raise ValidationError("min_length", min_length, f"at most max_length, {max_length}")
        if charset is not None and (not isinstance(charset, str) or not charset):
            raise ValidationError("charset", charset, "a non-empty string of allowed characters, or None for any")
        self.charset = charset

    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> str:
        check_single(self, shape)
        rng = np.random.default_rng(entropy(key))
        length = rng.integers(self.min_length, max(self.min_length, min(self.max_length, SAMPLED_LENGTH)) + 1)
        letters = list(self.charset or string.ascii_letters + string.digits + " ")
        return "".join(rng.choice(letters, int(length)))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length and self._uses_charset(x)

    def _uses_charset(self, x: str) -> bool:
        return self.charset is None or set(x) <= set(self.charset)

    def coerce(self, x: Any, name: str = "action") -> str:
        if not self.contains(x):
            raise ValidationError(name, x, f"a string in {self!r}")
        return str(x)

    def to_json(self, x: Any) -> str:
        return x

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": self.min_length, "maxLength": self.max_length}

    def from_text(self, text: str, name: str = "action") -> str:
        return self.coerce(text, name)

    def identity(self) -> tuple[Any, ...]:
        return self.max_length, self.min_length, self.charset

    def __repr__(self) -> str:
        return f"Text({self.min_length}…{self.max_length})"


class Record(Space):
    """Instances of a frozen dataclass; `coerce` also accepts a dict of its fields."""

    cls: type = eqx.field(static=True)

    def __init__(self, cls: Any):
        if not isinstance(cls, type) or not is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # pyright: ignore
            raise ValidationError("cls", cls, "a frozen dataclass")
        self.cls = cls

    @property
    def hints(self) -> dict[str, Any]:
        """The annotation of each field that the constructor takes."""
        return {name: field.hint for name, field in hints.record_fields(self.cls).items()}

    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        check_single(self, shape)
        return hints.sample(self.cls, np.random.default_rng(entropy(key)))

    def contains(self, x: Any) -> bool:
        if type(x) is not self.cls:
            return False
        return all(field.check(getattr(x, field.name)) for field in hints.record_fields(self.cls).values())

    def coerce(self, x: Any, name: str = "action") -> Any:
        if type(x) is not self.cls:
            return hints.build_record(self.cls, x, name)
        for field in hints.record_fields(self.cls).values():
            hints.check_field(field, getattr(x, field.name), name)
        return x

    def to_json(self, x: Any) -> dict[str, Any]:
        return hints.to_json(x)

    def json_schema(self) -> dict[str, Any]:
        return hints.record_schema(self.cls)

    def identity(self) -> tuple[Any, ...]:
        return (self.cls,)

    def __repr__(self) -> str:
        return f"Record({self.cls.__name__})"


def check_single(space: Space, shape: tuple[int, ...]) -> None:
    if shape:
        raise ValidationError("shape", shape, f"(): {space!r} has no arrays to stack")


def entropy(key: Any) -> list[int]:
    if is_integer(key):
        return [int(key)]
    return np.asarray(random.key_data(key)).tolist()
