"""Things of the user's own, named `module:name`; environments among them."""

import importlib
from collections.abc import Mapping
from typing import Any

from tropism.core.adapters.class_based import built, is_agent
from tropism.core.environment import Environment, override
from tropism.core.registry import find, make, note_source, unavailable_reasons
from tropism.errors import UnknownEnvironmentError, ValidationError

OWN = "A class of your own is named module:Class, and its module must be importable from here."


def imported(name: str, target: str, what: str) -> Any:
    """What `target` names."""
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


def environment_of(target: str, params: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """The environment that an id or `module:Class` names, and its params."""
    if ":" not in target:
        try:
            find(target)
        except UnknownEnvironmentError as error:
            hint = "" if target in unavailable_reasons() else f"\n{OWN}"
            raise UnknownEnvironmentError("id", target, error.expected, f"{error}{hint}") from None
        return make(target, params=dict(params), **arguments)
    made = imported("target", target, "module:Class")
    if not isinstance(made, type) or not (issubclass(made, Environment) or is_agent(made)):
        raise ValidationError("target", target, "the name of an Environment or AgentEnvironment class")
    try:
        env = built(made, dict(arguments))
    except TypeError as error:
        raise ValidationError("target", target, f"a class that can be made with these arguments ({error})") from None
    note_source(env, target, arguments)
    return env, override(env.default_params(), dict(params))
