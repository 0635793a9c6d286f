"""Python types of JSON Schemas, for signatures and models that are made from them."""

from typing import Any

TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict, "null": None}


def python_type(schema: dict[str, Any]) -> Any:
    """The type of the values of a schema; `Any` if it is not one of JSON's types."""
    kinds = schema.get("type")
    if isinstance(kinds, str):
        items = schema.get("items")
        return list[python_type(items)] if kinds == "array" and isinstance(items, dict) else TYPES[kinds]
    forms = schema.get("anyOf") or [{"type": kind} for kind in kinds or ()]
    types = [python_type(form) for form in forms]
    if not types or Any in types:
        return Any
    joined = types[0]
    for kind in types[1:]:
        joined = joined | kind
    return joined
