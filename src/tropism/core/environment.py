"""An environment is a pure function of (key, state, action, params)."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
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

MAX_PRINTED = 1000  # entries of an array that NumPy prints in full


class EnvParams(Module):
    """The numbers of an environment.

    Plain fields are pytree leaves: they can be vmapped, and a new value does not recompile. Constants derived
    from other fields are computed where they are used, never stored.
    """

    def check_numbers(self) -> None:
        """Raise a ValidationError for numbers that are inconsistent; called after some were overridden by name."""


class EnvState(Module):
    """The state of an environment; `time` counts the steps of this episode."""

    time: Int[Array, ""]


class Environment(Module):
    """Abstract: subclass it, give it hashable fields, and write the five abstract methods.

    Two environments with equal fields are equal and share one compilation. A host environment sets
    `traced = False`: its state is any Python object, it is never compiled, and its `key` is a plain
    int (the episode's seed in `reset`, then one int derived from it for each step).
    """

    traced: ClassVar[bool] = True
    replayable: ClassVar[bool] = True  # False: a host environment whose episodes cannot be replayed
    reseedable: ClassVar[bool] = True  # False: a host environment that ignores the keys of its steps
    seedable: ClassVar[bool] = True  # False: a host environment whose resets take no seed
    takes_episode_id: ClassVar[bool] = False  # True: a host environment that takes the option "episode_id"
    endless: ClassVar[bool] = False  # True: an environment whose episodes never end, by design
    # True: a step may be slow, so a server runs it in its own thread; the default of a host environment.
    blocking: ClassVar[bool] = False
    isolated: ClassVar[bool] = False  # True: each episode already has its own process
    interruptible: ClassVar[bool] = False  # True: a host environment that may be closed during a step
    # Frozen dataclasses of wire/messages.py for served actions and observations that are not records:
    # the only field of `action_message` is the action; `message` gives the fields of `observation_message`.
    action_message: ClassVar[type | None] = None
    observation_message: ClassVar[type | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "traced" in cls.__dict__ and "blocking" not in cls.__dict__:
            cls.blocking = not cls.traced

    @property
    def display_name(self) -> str:
        """The name in messages and lists; a wrapper has that of the wrapped environment."""
        return type(self).__name__

    @classmethod
    def unavailable_reason(cls) -> str | None:
        """Why the environment is unavailable on this machine; None if it is available."""
        return None

    @abstractmethod
    def default_params(self) -> EnvParams: ...

    @abstractmethod
    def reset(self, key: Any, params: Any) -> tuple[Any, Any]:
        """Start an episode: `(obs, state)`."""

    @abstractmethod
    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        """Take one action: `(obs, state, reward, done, info)`; never resets."""

    @abstractmethod
    def observation_space(self, params: Any) -> Space: ...

    @abstractmethod
    def action_space(self, params: Any) -> Space: ...

    def restart(self, key: Any, state: Any, params: Any) -> tuple[Any, Any]:
        """Start the episode after the one that ended in `state`; differs from `reset` only if
        something is kept across episodes, such as running statistics."""
        return self.reset(key, params)

    def info(self, state: Any, params: Any) -> Info:
        """The info of a state, after a reset too; `step` adds `terminated` and `truncated`."""
        return {}

    @property
    def reset_options(self) -> tuple[str, ...]:
        """Names of the options that a reset takes; `configure` rejects all others."""
        return ("params",)

    def configure(self, params: Any, options: Mapping[str, Any]) -> Any:
        """The params of one episode, given the options of its reset. Every environment takes `params`."""
        check_options(options, *self.reset_options)
        return override(params, options.get("params", {}))

    def render(self, state: Any, params: Any) -> Any:
        """An image of the state: (H, W, 3) uint8, or None if the environment has none."""
        return None

    def agent_position_in_image(self, state: Any, params: Any) -> tuple[float, float] | None:
        """The agent's position as fractions of the image's width and height from the upper left, for its trail."""
        return None

    def action_words(self) -> tuple[str, ...]:
        """Names of the actions of a Discrete space, or of the entries of a Box, in order."""
        return ()

    def click_actions(self) -> tuple[tuple[Any, ...], ...]:
        """The action of a click on each cell of the image, rows of equal cells from the upper left; None for none."""
        return ()

    def observation_words(self) -> tuple[str, ...]:
        """Names of the entries of an observation that is a short vector, in order."""
        return ()

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        """The observation as text, for a language agent."""
        return f"Observation: {_format_obs(obs)}"

    def parse(self, text: str, params: Any) -> Any:
        """The action in a language agent's text: one of `action_words`, or the action as JSON."""
        space, words = self.action_space(params), self.action_words()
        return parse_word(text, words, space) if words and isinstance(space, Discrete) else space.from_text(text)

    def message(self, obs: Any, info: Info) -> dict[str, Any]:
        """The fields of `observation_message` as JSON values, from the obs and info of a reset or step."""
        return {}

    def strategies(self) -> Mapping[str, Callable[[], Any]]:
        """Functions that make scripted policies for this environment, by the names that commands take."""
        return {}

    def state_is_lost(self, state: Any) -> bool:
        """Whether a host environment's state no longer exists, so that the episode has to be replayed."""
        return False

    def close(self, state: Any) -> None:
        """Release the resources of a host environment's state."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _values(self) == _values(other)  # pyright: ignore[reportArgumentType]

    def __hash__(self) -> int:
        return hash((type(self), _values(self)))


def _format_obs(obs: Any) -> str:
    """The numbers of each field as text; of a large image, its size."""
    if isinstance(obs, Mapping):
        return ", ".join(f"{name}: {_format_obs(part)}" for name, part in obs.items())
    array = np.asarray(obs)
    if array.dtype == np.uint8 and array.ndim == 3 and array.size > MAX_PRINTED:
        return f"an image of {array.shape[1]} x {array.shape[0]} pixels"
    return np.array2string(array, precision=4)


def _values(env: Environment) -> tuple[Any, ...]:
    return tuple(getattr(env, field.name) for field in fields(env))


def check_options(options: Mapping[Any, Any], *known: str) -> None:
    """Raise a ValidationError for an option that is not one of `known`."""
    for name in options:
        if name not in known:
            takes = ", ".join(sorted(known))
            raise ValidationError("options", name, f"a known option; this environment takes: {takes}")


def outcome(terminated: Any, truncated: Any, info: Info | None = None) -> tuple[Any, Info]:
    """The last two values that `step` returns: `done`, and `info` with both flags."""
    return terminated | truncated, {"terminated": terminated, "truncated": truncated, **(info or {})}


def flags(done: Any, info: Mapping[str, Any]) -> tuple[Any, Any]:
    """`(terminated, truncated)` of a step; without flags in `info`, `done` means terminated."""
    return info.get("terminated", done), info.get(
        "truncated", np.False_ if isinstance(done, bool) else jnp.zeros_like(done)
    )


def override(params: Any, values: Any) -> Any:
    """`params` with some numbers replaced by name; nested ones have dotted names such as "field.sigma"."""
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
    _check_number(full_name, value, value_at(params, full_name, path))
    return replace_at(params, path, value)


def value_at(params: Any, full_name: str, path: list[str], what: str = "params") -> Any:
    """The value with this dotted name; a ValidationError if there is none."""
    for name in path:
        known: list[str] = [field.name for field in fields(params)] if is_dataclass(type(params)) else []
        if name not in known:
            expected = f"a field of {type(params).__name__}: {', '.join(known) or 'it has none'}"
            raise ValidationError(what, full_name, expected)
        params = getattr(params, name)
    return params


def replace_at(params: Any, path: list[str], value: Any) -> Any:
    """Params with another value at this path."""
    if len(path) > 1:
        value = replace_at(getattr(params, path[0]), path[1:], value)
    return replace(params, **{path[0]: value})


def _check_number(name: str, value: Any, default: Any) -> None:
    if isinstance(default, eqx.Module) and not isinstance(value, eqx.Module):
        raise ValidationError(f"params[{name!r}]", value, f"a component like {type(default).__name__}")
    if isinstance(value, Tracer) or not isinstance(default, int | float | np.ndarray | jax.Array):
        return
    array = np.asarray(value)
    numeric = array.dtype.kind in "iuf" or (array.dtype.kind == "b" and np.asarray(default).dtype.kind == "b")
    if not numeric or not np.all(array == array):
        raise ValidationError(f"params[{name!r}]", value, f"a number like {default!r}, not NaN")
    if np.asarray(default).dtype.kind in "iu" and array.dtype.kind == "f":
        raise ValidationError(f"params[{name!r}]", value, f"an integer like {default!r}")
