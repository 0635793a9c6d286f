"""Adapts class-based environments, whose objects are mutable, to Environment."""

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from functools import cache, partial
from typing import Any, ClassVar, TypeVar, get_type_hints

import equinox as eqx

from tropism.core.adapters.language import parse_record
from tropism.core.adapters.openenv import declared_types
from tropism.core.adapters.recipe import Recipe, recipe_of
from tropism.core.environment import Environment, Info
from tropism.core.episode import small_seed
from tropism.core.host import Host
from tropism.core.params import EnvParams
from tropism.core.session.copying import defensive_copy
from tropism.core.spaces import Model, Record, Space
from tropism.core.spaces.model import is_model
from tropism.core.wrapper import Wrapper
from tropism.errors import ObservationError, ValidationError
from tropism.wire.messages import State

STATE_FIELDS = ("episode_id", "step_count")  # those of a session's state are its own
STANDARD_ARGUMENTS = ("seed", "episode_id", "options")  # reset arguments that are not options


class AgentEnvironment(ABC):
    """Subclass it and write `reset` and `step`; annotate them with your Action and Observation.

    `reset` may take `seed`, `episode_id` and further keyword arguments, which are the options of a reset.
    Every episode has its own object.
    """

    deterministic: ClassVar[bool] = False  # True: an episode depends only on its actions
    replayable: ClassVar[bool] = True  # False: the same seed and actions may give another episode
    endless: ClassVar[bool] = False  # True: episodes never end, by design
    blocking: ClassVar[bool] = True  # False: a step is fast and needs no thread of its own
    _transformed: Any = None  # the last result of `_apply_transform`

    @abstractmethod
    def reset(self) -> Any:
        """Start an episode: an Observation."""

    @abstractmethod
    def step(self, action: Any) -> Any:
        """Take one action: an Observation, with `reward` and `done`."""

    @property
    def state(self) -> State:
        """The state that this object reports; a Session counts steps itself."""
        return State()

    def transform(self, observation: Any) -> Any:
        """The observation for the agent; runs last."""
        return observation

    def _apply_transform(self, observation: Any) -> Any:
        """Apply `transform` now, as classes of OpenEnv do; it is not applied again."""
        self._transformed = self.transform(observation)
        return self._transformed

    def has_transformed(self, observation: Any) -> bool:
        """Whether `_apply_transform` returned this observation."""
        return self._transformed is observation

    def close(self) -> None:  # noqa: B027  optional
        """Release the resources of the object."""


class AgentParams(EnvParams):
    """The params of an episode are the options of its reset."""

    options: Any = eqx.field(static=True, default_factory=dict)


class ClassBasedEnvironment(Environment):
    """A host environment whose state is the object of the episode."""

    kind: type
    recipe: Recipe
    action: Space
    observation: Any

    @property
    def host(self) -> Host:  # pyright: ignore[reportIncompatibleVariableOverride]
        arguments = _reset_arguments(self.kind)
        seedable = "seed" in arguments or _class_flag(self.kind, "deterministic", False)
        return Host(
            replayable=seedable and _class_flag(self.kind, "replayable", True),
            seedable=seedable,
            reseedable=False,
            takes_episode_id="episode_id" in arguments,
            blocking=_class_flag(self.kind, "blocking", True),
        )

    @property
    def endless(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return _class_flag(self.kind, "endless", False)

    def default_params(self) -> AgentParams:
        return AgentParams()

    @property
    def reset_options(self) -> tuple[str, ...]:
        return tuple(name for name in _reset_arguments(self.kind) if name not in STANDARD_ARGUMENTS)

    def configure(self, params: Any, options: Mapping[str, Any]) -> AgentParams:
        accepted = _reset_arguments(self.kind)
        takes_any = "options" in accepted or "**" in accepted
        unknown = sorted(str(name) for name in options if name not in accepted and not takes_any)
        if unknown or "seed" in options:
            known = ", ".join(self.reset_options) or "none"
            raise ValidationError("options", (unknown or ["seed"])[0], f"an option of {self.kind.__name__}: {known}")
        return AgentParams(dict(options))

    def reset(self, key: int, params: Any) -> tuple[Any, Any]:
        agent = self.recipe.make()
        try:
            return _prepare_observation(
                agent, agent.reset(**self._arguments(key, params.options)), self.observation.cls
            ), agent
        except BaseException:
            self.close(agent)
            raise

    def _arguments(self, key: int, options: Mapping[str, Any]) -> dict[str, Any]:
        accepted, rest = _reset_arguments(self.kind), dict(options)
        known = {name: rest.pop(name) for name in list(rest) if name in accepted and name != "options"}
        if "seed" in accepted:
            known["seed"] = small_seed(key)
        return {**known, "options": rest} if "options" in accepted else {**known, **rest}

    def step(self, key: int, state: Any, action: Any, params: Any) -> tuple[Any, Any, float, bool, Info]:
        obs = _prepare_observation(state, state.step(action), self.observation.cls)
        done = bool(obs.done)
        return obs, state, float(obs.reward or 0.0), done, {"terminated": done, "truncated": False}

    def observation_space(self, params: Any) -> Space:
        return self.observation

    def action_space(self, params: Any) -> Space:
        return self.action

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        text = json.dumps(self.observation.to_json(obs), default=repr)
        return f"Observation: {text}\nAction: JSON of this schema: {json.dumps(self.action.json_schema())}"

    def parse(self, text: str, params: Any) -> Any:
        """The action as JSON or, if its only required field is a string, that string."""
        schema = self.action.json_schema()
        required = schema.get("required", [])
        if len(required) != 1 or schema["properties"][required[0]].get("type") != "string":
            return super().parse(text, params)
        return parse_record(text, self.action, lambda words: self.action.coerce({required[0]: words}))

    def state_fields(self, state: Any, params: Any) -> dict[str, Any]:
        """The fields that the class adds to its `state`."""
        own: Any = state.state
        fields: dict[str, Any] = own.model_dump(mode="json") if is_model(type(own)) else {}
        if is_dataclass(own) and not isinstance(own, type):
            fields = asdict(own)
        return {name: value for name, value in fields.items() if name not in STATE_FIELDS}

    def close(self, state: Any) -> None:
        close = getattr(state, "close", None)  # other classes may not have one
        if callable(close):
            close()


def _prepare_observation(agent: Any, obs: Any, cls: type) -> Any:
    """The observation, transformed and copied, since the object may change the one it returned."""
    if isinstance(agent, AgentEnvironment) and not agent.has_transformed(obs):
        obs = agent.transform(obs)
    if not isinstance(obs, cls):
        raise ObservationError("observation", obs, f"a {cls.__name__}, as {type(agent).__name__} declares")
    return defensive_copy(obs)


def adapt(factory: Any, action: Any = None, observation: Any = None) -> ClassBasedEnvironment:
    """Adapt a class-based environment: an AgentEnvironment, or a class in the style of the `openenv` package.

    `factory` is the class, a function that returns an instance, or an instance to copy. `action` and
    `observation` are frozen dataclasses or pydantic models, by default from the annotations of `step` and `reset`.
    """
    kind = _class_of(factory)
    action = action or _message_type(_annotation(kind, "step", "action"))
    observation = observation or _message_type(_annotation(kind, "step", "return"))
    observation = observation or _message_type(_annotation(kind, "reset", "return"))
    if action is None or observation is None:
        declared = declared_types(kind)
        action, observation = action or declared[0], observation or declared[1]
    obs_space = _space("observation", observation, kind)
    if not {"done", "reward"} <= set(obs_space.json_schema().get("properties", ())):
        raise ValidationError("observation", observation, "a class with the fields done and reward")
    return ClassBasedEnvironment(kind, recipe_of(factory), _space("action", action, kind), obs_space)


def is_agent_class(kind: Any) -> bool:
    """Whether a class looks like a class-based environment: `reset`, `step` and `state`."""
    if not isinstance(kind, type) or issubclass(kind, Environment):
        return False
    return all(callable(getattr(kind, name, None)) for name in ("reset", "step")) and hasattr(kind, "state")


def name_of(env: Any) -> str:
    """The name of an environment in messages: that of its class, or of the adapted or wrapped class."""
    if isinstance(env, Wrapper):
        return name_of(env.env)
    if isinstance(env, ClassBasedEnvironment):
        return env.kind.__name__
    return env.__name__ if is_agent_class(env) else type(env).__name__


def as_environment(thing: Any) -> Any:
    """Adapt a class-based environment or an instance of one; return anything else unchanged."""
    return adapt(thing) if is_agent_class(thing) or is_agent_class(type(thing)) else thing


def build_environment(factory: Any, arguments: Mapping[str, Any]) -> Any:
    """The environment that a factory returns for these arguments, adapted if it is class-based."""
    bound = partial(factory, **arguments)
    env = None if is_agent_class(factory) else bound()
    return adapt(bound) if is_agent_class(factory) or is_agent_class(type(env)) else env


def _class_of(factory: Any) -> type:
    """The class of the instances that the factory returns."""
    source: Any = factory.func if isinstance(factory, partial) else factory
    if is_agent_class(source):
        return source
    instance: Any = factory
    if not is_agent_class(type(factory)) and callable(factory):
        instance = factory()
        close = getattr(instance, "close", None)
        if callable(close):
            close()
    if not is_agent_class(type(instance)):
        raise ValidationError(
            "factory", factory, "a class with reset, step and state, or a function that returns an instance"
        )
    return type(instance)


def _annotation(kind: Any, method: str, which: str) -> Any:
    """The annotation of the action or of the returned observation; None if there is none."""
    function: Callable[..., Any] = getattr(kind, method)
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ValidationError(f"{kind.__name__}.{method}", str(error), "annotations that resolve, or adapt()") from None
    if which == "return":
        return hints.get("return")
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    return hints.get(names[0]) if names else None


def _message_type(annotation: Any) -> Any:
    """The annotation, unless it is a type variable, or the base class of all messages of the openenv package."""
    general = isinstance(annotation, TypeVar) or (
        isinstance(annotation, type) and annotation.__module__.startswith("openenv.core.")
    )
    return None if general else annotation


def _space(role: str, cls: Any, kind: type) -> Any:
    if isinstance(cls, Space):
        return cls
    if is_model(cls):
        return Model(cls)
    if isinstance(cls, type) and is_dataclass(cls):
        return Record(cls)
    expected = f"a frozen dataclass or a pydantic model: annotate {kind.__name__}.step, or use adapt(..., {role}=...)"
    raise ValidationError(role, cls, expected)


@cache
def _reset_arguments(kind: Any) -> tuple[str, ...]:
    """The names of a reset's arguments; one with **kwargs also has "**", "seed" and "episode_id"."""
    parameters = inspect.signature(kind.reset).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)][1:]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return (*names, "**", "seed", "episode_id") if takes_any else tuple(names)


def _class_flag(kind: type, name: str, default: bool) -> bool:
    """A flag of AgentEnvironment, which other classes may not have."""
    return bool(getattr(kind, name, default))
