"""An environment is a pure function of (key, state, action, params)."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Int

from tropism.core.adapters.language import parse_word
from tropism.core.module import Module
from tropism.core.spaces import Discrete, Space
from tropism.errors import ValidationError

Info = dict[str, Any]

MOST_PRINTED = 1000  # numbers of an array that NumPy prints in full


class EnvParams(Module):
    """The numbers of an environment.

    Plain fields are pytree leaves: they vmap, and a new value never recompiles. Constants that follow
    from other fields are computed where they are used, never stored.
    """

    def check_numbers(self) -> None:
        """Refuse, with a ValidationError, numbers that make no sense together; asked where some are given by name."""


class EnvState(Module):
    """What an environment remembers; `time` counts the steps of this episode."""

    time: Int[Array, ""]


class Environment(Module):
    """Abstract: subclass it, give it hashable fields, and write the six abstract methods.

    Two environments with equal fields are equal and share one compilation. A host environment sets
    `traced = False`: its state is any Python object, it is never compiled, and its `key` is a plain
    int (the episode's seed in `reset`, then one int derived from it for each step).
    """

    traced: ClassVar[bool] = True
    replayable: ClassVar[bool] = True  # False: a host environment whose episodes do not repeat
    reseedable: ClassVar[bool] = True  # False: a host environment that ignores the keys of its steps
    seedable: ClassVar[bool] = True  # False: a host environment whose resets take no seed
    takes_episode_id: ClassVar[bool] = False  # True: a host environment that takes the option "episode_id"
    endless: ClassVar[bool] = False  # True: an environment whose episodes never end, by design
    # True: a step may take long, so a server runs it in a thread of its own; a host environment's default.
    blocking: ClassVar[bool] = False
    isolated: ClassVar[bool] = False  # True: its episodes live in processes of their own already
    interruptible: ClassVar[bool] = False  # True: a host environment that may be closed in the middle of a step
    # The fields that an action or observation which is no record has when it is served, as frozen dataclasses
    # of wire/messages.py: the one field of the former is the action, those of the latter come from `message`.
    action_message: ClassVar[type | None] = None
    observation_message: ClassVar[type | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "traced" in cls.__dict__ and "blocking" not in cls.__dict__:
            cls.blocking = not cls.traced

    @property
    def display_name(self) -> str:
        """What people call it; something that stands for another environment has the name of that."""
        return type(self).__name__

    @classmethod
    def unavailable_reason(cls) -> str | None:
        """Why such an environment cannot be had on this machine; None where it can."""
        return None

    @abstractmethod
    def default_params(self) -> EnvParams: ...

    @abstractmethod
    def reset(self, key: Any, params: Any) -> tuple[Any, Any]:
        """Begin an episode: `(obs, state)`."""

    @abstractmethod
    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        """Take one action: `(obs, state, reward, done, info)`; never resets."""

    @abstractmethod
    def observation_space(self, params: Any) -> Space: ...

    @abstractmethod
    def action_space(self, params: Any) -> Space: ...

    def restart(self, key: Any, state: Any, params: Any) -> tuple[Any, Any]:
        """Begin the episode after the one that ended in `state`; differs from `reset` only where
        something outlives episodes, such as running statistics."""
        return self.reset(key, params)

    def info(self, state: Any, params: Any) -> Info:
        """What `info` says of a state, at a reset too; `step` adds `terminated` and `truncated`."""
        return {}

    @property
    def reset_options(self) -> tuple[str, ...]:
        """Names of the options that a reset takes; `configure` refuses all others."""
        return ("params",)

    def configure(self, params: Any, options: Mapping[str, Any]) -> Any:
        """The params of one episode, given the options of its reset. Every environment takes `params`."""
        check_options(options, *self.reset_options)
        return override(params, options.get("params", {}))

    def render(self, state: Any, params: Any) -> Any:
        """A picture of the state: (H, W, 3) uint8, or None where there is nothing to draw."""
        return None

    def agent_position_in_image(self, state: Any, params: Any) -> tuple[float, float] | None:
        """Where in its picture the agent is: shares of width and height from the upper left, for a trail."""
        return None

    def action_words(self) -> tuple[str, ...]:
        """What people call the actions of a Discrete space, or the entries of a Box, in order."""
        return ()

    def click_actions(self) -> tuple[tuple[Any, ...], ...]:
        """The actions that a click on the picture takes: rows of equal cells from the upper left; None for none."""
        return ()

    def observation_words(self) -> tuple[str, ...]:
        """What people call the entries of an observation that is a short vector, in order."""
        return ()

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        """The observation in words, for a language agent."""
        return f"Observation: {_printed(obs)}"

    def parse(self, text: str, params: Any) -> Any:
        """The action a language agent's words mean: one of `action_words`, or the action as JSON."""
        space, words = self.action_space(params), self.action_words()
        return parse_word(text, words, space) if words and isinstance(space, Discrete) else space.from_text(text)

    def message(self, obs: Any, info: Info) -> dict[str, Any]:
        """The fields of `observation_message`, as JSON values, of what a reset or a step returned."""
        return {}

    def state_is_lost(self, state: Any) -> bool:
        """Whether a host environment's state is gone for good, so that its episode has to be lived through again."""
        return False

    def close(self, state: Any) -> None:
        """Let go of what a host environment's state holds outside Python."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _values(self) == _values(other)  # pyright: ignore[reportArgumentType]

    def __hash__(self) -> int:
        return hash((type(self), _values(self)))


def _printed(obs: Any) -> str:
    """Numbers as text, field by field; of an image that is too large for that, its size."""
    if isinstance(obs, Mapping):
        return ", ".join(f"{name}: {_printed(part)}" for name, part in obs.items())
    array = np.asarray(obs)
    if array.dtype == np.uint8 and array.ndim == 3 and array.size > MOST_PRINTED:
        return f"an image of {array.shape[1]} x {array.shape[0]} pixels"
    return np.array2string(array, precision=4)


def _values(env: Environment) -> tuple[Any, ...]:
    return tuple(getattr(env, field.name) for field in fields(env))


def check_options(options: Mapping[Any, Any], *known: str) -> None:
    """Refuse an option that is not one of `known`."""
    for name in options:
        if name not in known:
            takes = ", ".join(sorted(known))
            raise ValidationError("options", name, f"a known option; this environment takes: {takes}")


def outcome(terminated: Any, truncated: Any, info: Info | None = None) -> tuple[Any, Info]:
    """The last two of `step`'s five: `done`, and `info` with both flags in it."""
    return terminated | truncated, {"terminated": terminated, "truncated": truncated, **(info or {})}


def flags(done: Any, info: Mapping[str, Any]) -> tuple[Any, Any]:
    """`(terminated, truncated)` of a step; an environment that says nothing terminates when done."""
    return info.get("terminated", done), info.get(
        "truncated", np.False_ if isinstance(done, bool) else jnp.zeros_like(done)
    )


def override(params: Any, values: Any) -> Any:
    """`params` with some numbers replaced by name; a number of a part has a dotted name, "field.sigma"."""
    if isinstance(values, type(params)):
        return values
    if not isinstance(values, Mapping):
        raise ValidationError("params", values, f"a dict of numbers or {type(params).__name__}")
    for name, value in values.items():
        params = _override_one(params, str(name), str(name).split("."), value)
    if values:
        params.check_numbers()
    return params


def _override_one(params: Any, full_name: str, path: list[str], value: Any) -> Any:
    _check_number(full_name, value, number_at(params, full_name, path))
    return replaced(params, path, value)


def number_at(params: Any, full_name: str, path: list[str], what: str = "params") -> Any:
    """What has this dotted name in params; refused where there is no such thing."""
    for name in path:
        known: list[str] = [field.name for field in fields(params)] if is_dataclass(type(params)) else []
        if name not in known:
            expected = f"a field of {type(params).__name__}: {', '.join(known) or 'it has none'}"
            raise ValidationError(what, full_name, expected)
        params = getattr(params, name)
    return params


def replaced(params: Any, path: list[str], value: Any) -> Any:
    """Params with another value at the end of this path."""
    if len(path) > 1:
        value = replaced(getattr(params, path[0]), path[1:], value)
    return replace(params, **{path[0]: value})


def _check_number(name: str, value: Any, default: Any) -> None:
    if isinstance(default, eqx.Module) and not isinstance(value, eqx.Module):
        raise ValidationError(f"params[{name!r}]", value, f"a part like {type(default).__name__}")
    if isinstance(value, Tracer) or not isinstance(default, int | float | np.ndarray | jax.Array):
        return
    array = np.asarray(value)
    numeric = array.dtype.kind in "iuf" or (array.dtype.kind == "b" and np.asarray(default).dtype.kind == "b")
    if not numeric or not np.all(array == array):
        raise ValidationError(f"params[{name!r}]", value, f"a number like {default!r}, not NaN")
    if np.asarray(default).dtype.kind in "iu" and array.dtype.kind == "f":
        raise ValidationError(f"params[{name!r}]", value, f"an integer like {default!r}")
