"""Class-based environments, whose objects change as they are stepped, as environments of ours."""

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache, partial
from typing import Any, ClassVar, get_type_hints

import equinox as eqx

from tropism.core.adapters.recipe import Recipe, recipe_of
from tropism.core.environment import Environment, EnvParams, Info
from tropism.core.episode import small_seed
from tropism.core.session.copying import fresh
from tropism.core.spaces import Model, Record, Space
from tropism.core.spaces.model import is_model
from tropism.errors import ObservationError, ValidationError
from tropism.wire.messages import State

OFFERED = ("seed", "episode_id", "options")  # arguments that a reset is given where it takes them


class AgentEnvironment(ABC):
    """Subclass it and write `reset` and `step`; annotate them with your Action and Observation.

    `reset` may take `seed`, `episode_id` and further keyword arguments, which are the options of a reset.
    Every episode lives in an object of its own.
    """

    deterministic: ClassVar[bool] = False  # True: an episode depends on its actions alone
    replayable: ClassVar[bool] = True  # False: the same seed and actions need not give the same episode
    endless: ClassVar[bool] = False  # True: episodes never end, by design
    blocking: ClassVar[bool] = True  # False: a step is quick, and needs no thread of its own

    @abstractmethod
    def reset(self) -> Any:
        """Begin an episode: an Observation."""

    @abstractmethod
    def step(self, action: Any) -> Any:
        """Take one action: an Observation, with `reward` and `done`."""

    @property
    def state(self) -> State:
        """Where the episode stands, as far as this object knows; a Session counts for itself."""
        return State()

    def transform(self, observation: Any) -> Any:
        """The observation as the agent is to see it; runs last."""
        return observation

    def close(self) -> None:  # noqa: B027  there need not be anything
        """Let go of what the object holds outside Python."""


class AgentParams(EnvParams):
    """`options` are those of the reset."""

    options: Any = eqx.field(static=True, default_factory=dict)


class Adapted(Environment):
    """A host environment; its state is the object that an episode lives in."""

    traced: ClassVar[bool] = False
    reseedable: ClassVar[bool] = False

    kind: type
    recipe: Recipe
    action: Space
    observation: Any

    @property
    def seedable(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "seed" in _taken(self.kind) or bool(_declared(self.kind, "deterministic", False))

    @property
    def replayable(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.seedable and bool(_declared(self.kind, "replayable", True))

    @property
    def endless(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return bool(_declared(self.kind, "endless", False))

    @property
    def blocking(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return bool(_declared(self.kind, "blocking", True))

    @property
    def takes_episode_id(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "episode_id" in _taken(self.kind)

    @property
    def display_name(self) -> str:
        return self.kind.__name__

    def default_params(self) -> AgentParams:
        return AgentParams()

    @property
    def reset_options(self) -> tuple[str, ...]:
        return tuple(name for name in _taken(self.kind) if name not in OFFERED)

    def configure(self, params: Any, options: Mapping[str, Any]) -> AgentParams:
        taken = _taken(self.kind)
        free = "options" in taken or "**" in taken
        unknown = sorted(str(name) for name in options if name not in taken and not free)
        if unknown or "seed" in options:
            known = ", ".join(self.reset_options) or "none"
            raise ValidationError("options", (unknown or ["seed"])[0], f"an option of {self.kind.__name__}: {known}")
        return AgentParams(dict(options))

    def reset(self, key: int, params: Any) -> tuple[Any, Any]:
        agent = self.recipe.make()
        try:
            return _seen(agent, agent.reset(**self._arguments(key, params.options)), self.observation.cls), agent
        except BaseException:
            self.close(agent)
            raise

    def _arguments(self, key: int, options: Mapping[str, Any]) -> dict[str, Any]:
        taken, given = _taken(self.kind), dict(options)
        known = {name: given.pop(name) for name in list(given) if name in taken and name != "options"}
        if "seed" in taken:
            known["seed"] = small_seed(key)
        return {**known, "options": given} if "options" in taken else {**known, **given}

    def step(self, key: int, state: Any, action: Any, params: Any) -> tuple[Any, Any, float, bool, Info]:
        obs = _seen(state, state.step(action), self.observation.cls)
        done = bool(obs.done)
        return obs, state, float(obs.reward or 0.0), done, {"terminated": done, "truncated": False}

    def observation_space(self, params: Any) -> Space:
        return self.observation

    def action_space(self, params: Any) -> Space:
        return self.action

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        seen = json.dumps(self.observation.to_json(obs), default=repr)
        return f"Observation: {seen}\nAction: JSON of this schema: {json.dumps(self.action.json_schema())}"

    def close(self, state: Any) -> None:
        close = getattr(state, "close", None)  # a stranger's class need not have one
        if callable(close):
            close()


def _seen(agent: Any, obs: Any, cls: type) -> Any:
    """The observation, transformed and copied: the object may go on changing the one it returned."""
    if isinstance(agent, AgentEnvironment):
        obs = agent.transform(obs)
    if not isinstance(obs, cls):
        raise ObservationError("observation", obs, f"a {cls.__name__}, as {type(agent).__name__} declares")
    return fresh(obs)


def adapt(factory: Any, action: Any = None, observation: Any = None) -> Adapted:
    """A class-based environment as one of ours: an AgentEnvironment, or a class of the `openenv` package.

    `factory` is the class, a function that makes one, or an instance to copy. `action` and `observation` are
    frozen dataclasses or pydantic models; by default those that `step` and `reset` are annotated with.
    """
    kind = _kind_of(factory)
    action = action or _annotation(kind, "step", "action")
    observation = observation or _annotation(kind, "step", "return") or _annotation(kind, "reset", "return")
    seen = _space("observation", observation, kind)
    if not {"done", "reward"} <= set(seen.json_schema().get("properties", ())):
        raise ValidationError("observation", observation, "a class with the fields done and reward")
    return Adapted(kind, recipe_of(factory), _space("action", action, kind), seen)


def is_agent(kind: Any) -> bool:
    """Whether a class looks like a class-based environment: `reset`, `step` and `state`."""
    if not isinstance(kind, type) or issubclass(kind, Environment):
        return False
    return all(callable(getattr(kind, name, None)) for name in ("reset", "step")) and hasattr(kind, "state")


def name_of(env: Any) -> str:
    """What people call an environment: the name of its class, or of the one that is adapted."""
    if isinstance(env, Environment):
        return env.display_name
    return env.__name__ if is_agent(env) else type(env).__name__


def as_environment(thing: Any) -> Any:
    """A class-based environment, or an instance of one, adapted; anything else as it is."""
    return adapt(thing) if is_agent(thing) or is_agent(type(thing)) else thing


def built(factory: Any, arguments: Mapping[str, Any]) -> Any:
    """What a factory makes of these arguments; adapted, where that is a class-based environment."""
    recipe = partial(factory, **arguments)
    made = None if is_agent(factory) else recipe()
    return adapt(recipe) if is_agent(factory) or is_agent(type(made)) else made


def _kind_of(factory: Any) -> type:
    """The class of what the factory makes."""
    source: Any = factory.func if isinstance(factory, partial) else factory
    if is_agent(source):
        return source
    made: Any = factory
    if not is_agent(type(factory)) and callable(factory):
        made = factory()
        close = getattr(made, "close", None)
        if callable(close):
            close()
    if not is_agent(type(made)):
        raise ValidationError("factory", factory, "a class with reset, step and state, or a function that makes one")
    return type(made)


def _annotation(kind: Any, method: str, which: str) -> Any:
    """The class that an action or the returned observation is annotated with; None where there is none."""
    function: Callable[..., Any] = getattr(kind, method)
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ValidationError(f"{kind.__name__}.{method}", str(error), "annotations that resolve, or adapt()") from None
    if which == "return":
        return hints.get("return")
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    return hints.get(names[0]) if names else None


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
def _taken(kind: Any) -> tuple[str, ...]:
    """The names of the arguments a reset takes; one that takes any has "**", "seed" and "episode_id" among them."""
    parameters = inspect.signature(kind.reset).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)][1:]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return (*names, "**", "seed", "episode_id") if takes_any else tuple(names)


def _declared(kind: type, name: str, otherwise: bool) -> bool:
    """What a class says of itself; a stranger's says nothing."""
    return getattr(kind, name, otherwise)
