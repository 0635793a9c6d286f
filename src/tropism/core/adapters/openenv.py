"""The message types that packages in the style of OpenEnv declare beside their environment class."""

import importlib
import inspect
from importlib.util import find_spec
from typing import Any, get_args

APP_MODULE = "app"  # the module of such a package that creates its server


def declared_types(kind: type) -> tuple[Any, Any]:
    """The types of actions and observations: those of its generic base class, or else those of its server.

    A package of OpenEnv has the class in one module, without annotations, and passes it to `create_app` with the types
    of its messages in the module `app` beside it. A type that is not declared is None.
    """
    return _type_arguments(kind) or _server_types(kind) or (None, None)


def _type_arguments(kind: type) -> tuple[Any, Any] | None:
    """The first two arguments of a generic base class, as in `Environment[MyAction, MyObservation, MyState]`."""
    for base in getattr(kind, "__orig_bases__", ()):
        arguments = get_args(base)
        if len(arguments) >= 2 and all(isinstance(each, type) and each is not Any for each in arguments[:2]):
            return arguments[0], arguments[1]
    return None


def _server_types(kind: type) -> tuple[Any, Any] | None:
    """The types with which the module `app` beside the class, or its own module, serves it."""
    package = kind.__module__.rpartition(".")[0]
    modules = [kind.__module__, *([f"{package}.{APP_MODULE}"] if package else [])]
    for name in modules:
        if find_spec(name) is None:
            continue
        for value in vars(importlib.import_module(name)).values():
            for server in _servers(value):
                if kind in (server._env_factory, getattr(server._env_factory, "func", None)):
                    return server.action_cls, server.observation_cls
    return None


def _servers(app: Any) -> list[Any]:
    """The OpenEnv servers that the routes of a FastAPI application belong to."""
    endpoints = [getattr(route, "endpoint", None) for route in getattr(app, "routes", None) or ()]
    functions = [endpoint for endpoint in endpoints if inspect.isfunction(endpoint)]
    values = [value for function in functions for value in _nonlocals(function)]
    inner = [value for function in values if inspect.isfunction(function) for value in _nonlocals(function)]
    return [each for each in (*values, *inner) if hasattr(each, "_env_factory") and hasattr(each, "action_cls")]


def _nonlocals(function: Any) -> list[Any]:
    return list(inspect.getclosurevars(function).nonlocals.values())
