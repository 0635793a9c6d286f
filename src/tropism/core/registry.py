"""The registry of environment ids."""

import difflib
import importlib
import inspect
import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from tropism.core.adapters.class_based import ClassBasedEnvironment, adapt, build_environment, is_agent_class
from tropism.core.environment import Environment
from tropism.core.params import override
from tropism.errors import UnknownEnvironmentError, ValidationError

Target = TypeVar("Target")
GROUP = "tropism.environments"
DECORATE = object()  # default of register(): it returns a decorator

BUILT_IN = {
    "CartPole-v1": "tropism.envs.cartpole:CartPole",
    "Pendulum-v1": "tropism.envs.pendulum:Pendulum",
    "MountainCar-v0": "tropism.envs.mountain_car:MountainCar",
    "MountainCarContinuous-v0": "tropism.envs.mountain_car_continuous:MountainCarContinuous",
    "Acrobot-v1": "tropism.envs.acrobot:Acrobot",
    "GridWorld-v0": "tropism.envs.grid_world:GridWorld",
    "PixelGridWorld-v0": "tropism.envs.pixel_grid_world:PixelGridWorld",
    "ConnectFour-v0": "tropism.envs.connect_four:ConnectFour",
    "Echo-v0": "tropism.envs.echo:Echo",
    "Chat-v0": "tropism.envs.chat:Chat",
    "Coding-v0": "tropism.envs.coding.coding:Coding",
    "Shell-v0": "tropism.envs.shell:Shell",
    "PlumeNav-v0": "tropism.envs.plume.nav:PlumeNav",
    "PlumeNavMeander-v0": "tropism.envs.plume.tasks:meander",
    "PlumeNavPuffs-v0": "tropism.envs.plume.tasks:puffs",
    "PlumeNavSingh-v0": "tropism.envs.plume.tasks:singh",
    "PlumeNavFilaments-v0": "tropism.envs.plume.tasks:filaments",
    "PlumeNavMovie-v0": "tropism.envs.plume.tasks:movie",
    "SourceTracking-v0": "tropism.envs.source_tracking:isotropic",
    "SourceTracking1D-v0": "tropism.envs.source_tracking:line",
    "SourceTracking19x19-v0": "tropism.envs.source_tracking:small",
    "SourceTracking53x53-v0": "tropism.envs.source_tracking:large",
    "SourceTrackingWindy-v0": "tropism.envs.source_tracking:windy",
}


@dataclass(frozen=True)
class EnvironmentSpec:
    """One registered id. `traced`: the environment is pure. `source` is "built-in", an entry point, or "register()"."""

    id: str
    summary: str
    traced: bool
    source: str
    factory: Callable[..., Any]


_specs: dict[str, EnvironmentSpec] = {}
_sources: dict[Environment, dict[str, Any]] = {}
_presets: list[tuple[Any, str, dict[str, Any]]] = []  # class or factory, algorithm, hyperparameters
_listeners: list[Callable[[EnvironmentSpec], None]] = []


def register(id: str, env_or_factory: Any = DECORATE, *, force: bool = False) -> Any:
    """Add an environment (instance, class, or a function that returns one); also a decorator."""
    if env_or_factory is DECORATE:
        return lambda target: (register(id, target, force=force), target)[1]
    _load()
    if not isinstance(id, str) or not re.fullmatch(r"[\w.-]+", id):
        raise ValidationError("id", id, "a name such as 'Maze-v0', of letters, digits, '_', '-' and '.'")
    if id in _specs and not force:
        raise ValidationError("id", id, "an id that is not registered yet, or force=True")
    _specs[id] = _spec(id, env_or_factory, "register()")
    for env in [env for env, source in _sources.items() if source.get("id") == id]:
        del _sources[env]  # built by the factory that the id had before
    for listener in _listeners:
        listener(_specs[id])
    return env_or_factory


def on_register(listener: Callable[[EnvironmentSpec], None]) -> None:
    """Call `listener` with every registered spec, and with each new one."""
    _listeners.append(listener)
    _load()
    for spec in _specs.values():
        listener(spec)


def registered() -> tuple[EnvironmentSpec, ...]:
    """The specs available on this machine, in the order of registration."""
    _load()
    return tuple(spec for spec in _specs.values() if _unavailable_reason(spec) is None)


def id_of_factory(factory: Any) -> str | None:
    """The id whose factory is this class or function, available or not."""
    _load()
    return next((spec.id for spec in _specs.values() if spec.factory is factory), None)


def preset(algorithm: str, **numbers: Any) -> Callable[[Target], Target]:
    """Decorates a class or factory with tuned hyperparameters, as differences from the algorithm's defaults."""

    def declare(target: Target) -> Target:
        _presets.append((target, algorithm, numbers))
        return target

    return declare


def presets(algorithm: str) -> dict[str, dict[str, Any]]:
    """The hyperparameters of this training algorithm that environments declare, by id."""
    _load()
    return {
        id: numbers
        for id, spec in _specs.items()
        for target, name, numbers in _presets
        if target is spec.factory and name == algorithm
    }


def unavailable_reasons() -> dict[str, str]:
    """The ids that are unavailable on this machine, each with the reason."""
    _load()
    return {id: reason for id, spec in _specs.items() if (reason := _unavailable_reason(spec)) is not None}


def make(id: str, *, params: Any = None, **arguments: Any) -> tuple[Any, Any]:
    """The environment of this id and its params. `params` sets numbers by name; `arguments` are those of its
    constructor, which may change shapes."""
    spec = find(id)
    env = _build(spec, arguments)
    _sources[env] = {"id": id, "arguments": arguments}
    return env, override(env.default_params(), {} if params is None else params)


def find(id: str) -> EnvironmentSpec:
    if id in BUILT_IN and id not in _specs:
        _specs[id] = _built_in(id)  # only this one: importing the others is slow
    elif id not in _specs:
        _load()
    if id not in _specs:
        near = difflib.get_close_matches(str(id), _specs, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(_specs)}"
        raise UnknownEnvironmentError("id", id, "a registered id", f"no environment {id!r}; {hint}")
    reason = _unavailable_reason(_specs[id])
    if reason is not None:
        raise UnknownEnvironmentError("id", id, "an id that is available here", f"no environment {id!r} here: {reason}")
    return _specs[id]


def _unavailable_reason(spec: EnvironmentSpec) -> str | None:
    kind = spec.factory
    return kind.unavailable_reason() if isinstance(kind, type) and issubclass(kind, Environment) else None


def identify(env: Environment) -> dict[str, Any] | None:
    """The id, or else the class, and the arguments that rebuild this environment; None if they are not JSON."""
    _load()
    source = _sources.get(env)
    if source is None:
        kind = env.kind if isinstance(env, ClassBasedEnvironment) else type(env)
        matches = (spec for spec in _specs.values() if kind is spec.factory)
        equal = (spec for spec in matches if not _required_arguments(spec.factory) and _build(spec, {}) == env)
        source = next(({"id": spec.id, "arguments": {}} for spec in equal), None) or _class_source(kind)
    try:
        json.dumps(source)
    except TypeError:
        return None
    return source


def _class_source(kind: type) -> dict[str, Any] | None:
    """The class of an environment without an id; its arguments are known only if it takes none.

    None for our adapters and transforms: their class does not identify the wrapped environment.
    """
    if "<locals>" in kind.__qualname__ or kind.__module__.startswith("tropism."):
        return None
    arguments = None if inspect.signature(kind).parameters else {}
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "arguments": arguments}


def set_source(env: Environment, target: str, arguments: Mapping[str, Any]) -> None:
    """Record that this environment is an instance of the class `target`, built with these arguments."""
    if "id" not in (identify(env) or {}):
        _sources[env] = {"class": target, "arguments": dict(arguments)}


def copy_source(original: Environment, other: Environment) -> None:
    """Identify `other`, which runs the same episodes, by the id and arguments of `original`."""
    source = identify(original)
    if source is not None:
        _sources[other] = source


def _build(spec: EnvironmentSpec, arguments: dict[str, Any]) -> Environment:
    signature = inspect.signature(spec.factory)
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
    for name in arguments:
        if name not in signature.parameters and not takes_any:
            known = ", ".join(signature.parameters)
            expected = f"an argument of {spec.id}: {known}" if known else f"no argument: {spec.id} takes none"
            raise ValidationError("argument", name, expected)
    for name in _required_arguments(spec.factory):
        if name not in arguments:
            raise ValidationError("arguments", arguments, f"{name!r}, which {spec.id} needs")
    env = build_environment(spec.factory, arguments)
    if not isinstance(env, Environment):
        raise ValidationError(spec.id, env, "a factory that returns an Environment")
    return env


def _spec(id: str, target: Any, source: str) -> EnvironmentSpec:
    if isinstance(target, Environment):
        instance = target
        return EnvironmentSpec(id, _summary(type(target)), target.pure, source, lambda: instance)
    if isinstance(target, type) and issubclass(target, Environment):
        return EnvironmentSpec(id, _summary(target), target.host is None, source, target)
    if is_agent_class(target):
        adapt(target)  # raises now if the class cannot be adapted
        return EnvironmentSpec(id, _summary(target), False, source, target)
    if is_agent_class(type(target)):
        return _spec(id, adapt(target), source)
    if callable(target) and not isinstance(target, type):
        return _factory_spec(id, target, source)
    raise ValidationError("env_or_factory", target, "an Environment, a subclass of it, or a function that returns one")


def _factory_spec(id: str, factory: Any, source: str) -> EnvironmentSpec:
    required = _required_arguments(factory)
    if required:
        raise ValidationError(
            "env_or_factory", factory, f"a factory whose arguments have defaults; {required[0]!r} has none"
        )
    env = build_environment(factory, {})
    if not isinstance(env, Environment):
        raise ValidationError(
            "env_or_factory", factory, f"a factory that returns an Environment, not {type(env).__name__}"
        )
    return EnvironmentSpec(id, _summary(factory) or _summary(type(env)), env.pure, source, factory)


def _required_arguments(factory: Any) -> list[str]:
    """The arguments without a default."""
    parameters = inspect.signature(factory).parameters.values()
    optional = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in optional]


def _summary(target: Any) -> str:
    """The first line of the docstring, or of the module's docstring if that describes the class."""
    own = (target.__doc__ or "").strip()
    generated = own.startswith(f"{target.__name__}(")  # the default docstring of a dataclass
    of_module = getattr(inspect.getmodule(target), "__doc__", None) or ""
    describes_class = isinstance(target, type) and of_module.startswith(f"{target.__name__}:")
    text = of_module if describes_class or not own or generated else own
    line = text.strip().split("\n")[0].removeprefix(f"{target.__name__}: ")
    return line[:1].upper() + line[1:]


@cache
def _load() -> None:
    """Register the built-ins and the entry points of other packages, once, on first use."""
    for id in BUILT_IN:
        _specs[id] = _specs.pop(id, None) or _built_in(id)  # moved to the end, so that the order is that of BUILT_IN
    for point in entry_points(group=GROUP):
        try:
            _specs.setdefault(point.name, _spec(point.name, point.load(), point.value))
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            warnings.warn(f"environment {point.name!r} of {point.value} is skipped: {error}", stacklevel=2)


def _built_in(id: str) -> EnvironmentSpec:
    """The spec of a built-in. Functions are not called, since that may compile: their return annotation is used."""
    module, name = BUILT_IN[id].split(":")
    target = getattr(importlib.import_module(module), name)
    if not inspect.isfunction(target):
        return _spec(id, target, "built-in")
    kind = inspect.signature(target, eval_str=True).return_annotation
    return EnvironmentSpec(id, _summary(target), kind.host is None, "built-in", target)
