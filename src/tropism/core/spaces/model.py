"""Model: a space of typed messages that validate themselves, such as pydantic models."""

import string
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np

from tropism.core.spaces.hints import SAMPLED_LENGTH
from tropism.core.spaces.message import check_single, entropy
from tropism.core.spaces.space import Space
from tropism.errors import ValidationError

METHODS = ("model_validate", "model_dump", "model_json_schema")
LARGEST_SAMPLE = 100


class Model(Space):
    """Instances of a class with pydantic's methods; `coerce` also accepts a dict of its fields."""

    cls: type = eqx.field(static=True)

    def __init__(self, cls: Any):
        if not is_model(cls):
            raise ValidationError("cls", cls, f"a class with the methods {', '.join(METHODS)}")
        self.cls = cls

    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        """Required fields are drawn from the schema, the others have their defaults."""
        check_single(self, shape)
        schema = self.json_schema()
        return self.coerce(_draw(schema, schema, np.random.default_rng(entropy(key))), "sample")

    def contains(self, x: Any) -> bool:
        return type(x) is self.cls

    def coerce(self, x: Any, name: str = "action") -> Any:
        cls: Any = self.cls
        if type(x) is cls:
            return x
        if not isinstance(x, Mapping):
            raise ValidationError(name, x, f"a {cls.__name__} or a dict of its fields")
        try:
            return cls.model_validate(dict(x))
        except ValueError as error:
            place, value, reason = _first_error(error, x)
            raise ValidationError(f"{name}{place}", value, f"a {cls.__name__} ({reason})") from error

    def to_json(self, x: Any) -> dict[str, Any]:
        return x.model_dump(mode="json")

    def json_schema(self) -> dict[str, Any]:
        cls: Any = self.cls
        schema = cls.model_json_schema()
        return _inline_refs(schema, schema.pop("$defs", {}))

    def identity(self) -> tuple[Any, ...]:
        return (self.cls,)

    def __repr__(self) -> str:
        return f"Model({self.cls.__name__})"


def _inline_refs(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema with every definition inlined; a recursive reference allows any value."""
    if isinstance(schema, list):
        return [_inline_refs(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name in definitions:
        others = {key: definition for key, definition in definitions.items() if key != name}
        return _inline_refs(definitions[name], others)
    return {key: _inline_refs(value, definitions) for key, value in schema.items() if key != "$ref"}


def is_model(cls: Any) -> bool:
    return isinstance(cls, type) and all(callable(getattr(cls, method, None)) for method in METHODS)


def _first_error(error: Any, x: Any) -> tuple[str, Any, str]:
    """The place, the value and the message of the first error; pydantic's errors are a list of dicts."""
    errors = error.errors() if callable(getattr(error, "errors", None)) else []
    if not errors:
        return "", x, " ".join(str(error).split())
    return "".join(f".{part}" for part in errors[0]["loc"]), errors[0].get("input", x), errors[0]["msg"]


def _draw(schema: Mapping[str, Any], root: Mapping[str, Any], rng: np.random.Generator) -> Any:
    """A random value that matches a JSON Schema, without optional fields."""
    if "$ref" in schema:
        return _draw(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, rng)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][int(rng.integers(len(schema["enum"])))]
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return _draw(schema[word][0], root, rng)
    draw = GENERATORS.get(schema.get("type", ""))
    return None if draw is None else draw(schema, root, rng)


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {name: _draw(schema["properties"][name], root, rng) for name in schema.get("required", ())}


def _array(schema: Mapping[str, Any], root: Mapping[str, Any], rng: np.random.Generator) -> list[Any]:
    parts = schema.get("prefixItems", [schema.get("items", {})] * schema.get("minItems", 0))
    return [_draw(part, root, rng) for part in parts]


def _string(schema: Mapping[str, Any], _: Mapping[str, Any], rng: np.random.Generator) -> str:
    shortest = schema.get("minLength", 0)
    longest = max(shortest, min(SAMPLED_LENGTH, schema.get("maxLength", SAMPLED_LENGTH)))
    return "".join(rng.choice(list(string.ascii_letters), int(rng.integers(shortest, longest + 1))))


def _integer(schema: Mapping[str, Any], _: Mapping[str, Any], rng: np.random.Generator) -> int:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    high = schema.get("maximum", schema.get("exclusiveMaximum", max(low, 0) + LARGEST_SAMPLE + 1) - 1)
    return int(rng.integers(min(low, high), high + 1))


def _number(schema: Mapping[str, Any], _: Mapping[str, Any], rng: np.random.Generator) -> float:
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0.0))
    high = schema.get("maximum", schema.get("exclusiveMaximum", max(low, 0.0) + 1.0))
    return float(low + (high - low) * rng.uniform(0.01, 0.99))


def _boolean(_schema: Mapping[str, Any], _root: Mapping[str, Any], rng: np.random.Generator) -> bool:
    return bool(rng.integers(2))


GENERATORS: dict[str, Any] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}
