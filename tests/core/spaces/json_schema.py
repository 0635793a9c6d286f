"""A validator for the part of JSON Schema that the spaces use."""

from typing import Any

TYPES: dict[str, Any] = {
    "string": lambda x: isinstance(x, str),
    "boolean": lambda x: isinstance(x, bool),
    "integer": lambda x: isinstance(x, int) and not isinstance(x, bool),
    "number": lambda x: isinstance(x, int | float) and not isinstance(x, bool),
    "null": lambda x: x is None,
    "array": lambda x: isinstance(x, list),
    "object": lambda x: isinstance(x, dict),
}
ANNOTATIONS = {
    "title",
    "default",
    "items",
    "additionalProperties",
}  # constrain nothing by themselves
RULES: dict[str, Any] = {
    "type": lambda rule, x, _: TYPES[rule](x),
    "enum": lambda rule, x, _: x in rule,
    "anyOf": lambda rule, x, _: any(is_valid(one, x) for one in rule),
    "minimum": lambda rule, x, _: x >= rule,
    "maximum": lambda rule, x, _: x <= rule,
    "minLength": lambda rule, x, _: len(x) >= rule,
    "maxLength": lambda rule, x, _: len(x) <= rule,
    "minItems": lambda rule, x, _: len(x) >= rule,
    "maxItems": lambda rule, x, _: len(x) <= rule,
    "prefixItems": lambda rule, x, _: all(is_valid(one, item) for one, item in zip(rule, x, strict=False)),
    "required": lambda rule, x, _: set(rule) <= set(x),
    "properties": lambda rule, x, _: all(is_valid(one, x[name]) for name, one in rule.items() if name in x),
}


def is_valid(schema: Any, data: Any) -> bool:
    if isinstance(schema, bool):
        return schema
    assert set(schema) <= set(RULES) | ANNOTATIONS, f"a keyword this validator does not know: {schema}"
    if not all(RULES[word](rule, data, schema) for word, rule in schema.items() if word in RULES):
        return False
    if isinstance(data, list):
        return all(is_valid(schema.get("items", True), item) for item in data[len(schema.get("prefixItems", [])) :])
    if isinstance(data, dict):
        rest = {name: value for name, value in data.items() if name not in schema.get("properties", {})}
        return all(is_valid(schema.get("additionalProperties", True), value) for value in rest.values())
    return True
