"""Resolves `module:name` to an object, and ids or `module:Class` to environments."""

import importlib
from collections.abc import Mapping
from typing import Any

from tropism.core.adapters.class_based import build_environment, is_agent_class
from tropism.core.environment import Environment
from tropism.core.params import override
from tropism.core.registry import find, id_of_factory, make, set_source, unavailable_reasons
from tropism.errors import UnknownEnvironmentError, ValidationError

HINT = "A class of your own is named module:Class, and its module must be importable from here."


def resolve(name: str, target: str, what: str) -> Any:
    """The object that `target`, `module:name`, refers to."""
    path, _, attribute = target.partition(":")
    if not path or not attribute:
        raise ValidationError(name, target, what)
    try:
        module = importlib.import_module(path)
    except ImportError as error:
        raise ValidationError(name, target, f"an importable {what} ({error})") from error
    if attribute not in vars(module):
        raise ValidationError(name, target, f"an importable {what} (the module has no {attribute!r})")
    return vars(module)[attribute]


def resolve_environment(target: str, params: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """The environment of an id or `module:Class`, and its params."""
    if ":" not in target:
        try:
            find(target)
        except UnknownEnvironmentError as error:
            hint = "" if target in unavailable_reasons() else f"\n{HINT}"
            raise UnknownEnvironmentError("id", target, error.expected, f"{error}{hint}") from None
        return make(target, params=dict(params), **arguments)
    cls = resolve("target", target, "module:Class")
    if not isinstance(cls, type) and (id := id_of_factory(cls)) is not None:  # a function that its module registered
        return make(id, params=dict(params), **arguments)
    if not isinstance(cls, type) or not (issubclass(cls, Environment) or is_agent_class(cls)):
        raise ValidationError("target", target, "the name of an Environment or AgentEnvironment class")
    try:
        env = build_environment(cls, dict(arguments))
    except TypeError as error:
        raise ValidationError("target", target, f"a class that takes these arguments ({error})") from None
    set_source(env, target, arguments)
    return env, override(env.default_params(), dict(params))
