"""An environment is a pure function of (key, state, action, params)."""

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from tropism.core.adapters.language import Language, parse_word
from tropism.core.host import PURE, Host
from tropism.core.module import Module
from tropism.core.params import EnvParams, override
from tropism.core.spaces import Discrete, Space
from tropism.core.workspace import Workspace
from tropism.errors import ValidationError

Info = dict[str, Any]

MAX_PRINTED = 1000  # entries of an array that NumPy prints in full


class EnvState(Module):
    """The state of an environment; `time` counts the steps of this episode."""

    time: Int[Array, ""]


class Environment(Module):
    """Abstract: derive a class with hashable fields, and implement the five abstract methods.

    Two environments with equal fields are equal and share one compilation. A host environment sets
    `host = Host(...)`: its state is any Python object, it is never compiled, and its `key` is a plain
    int (the episode's seed in `reset`, then one int derived from it for each step; 0 if steps use none).
    """

    host: ClassVar[Host | None] = None
    endless: ClassVar[bool] = False  # True: episodes never end, by design
    language: ClassVar[Language] = Language()
    reward_threshold: ClassVar[float | None] = None  # the mean return of an episode at which the task counts as solved
    private_info: ClassVar[tuple[str, ...]] = ()  # names in `info` that reveal the solution; a server withholds them

    @property
    def pure(self) -> bool:
        """Whether the environment is a pure function, which can be compiled."""
        return self.host is None

    @property
    def traits(self) -> Host:
        """`host`, or the traits that every pure environment has."""
        return PURE if self.host is None else self.host

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
        """The part of `info` that a reset has too; `step` adds `terminated` and `truncated`."""
        return {}

    @property
    def reset_options(self) -> tuple[str, ...]:
        """Names of the options that a reset takes; `configure` rejects all others."""
        return ("params",)

    def configure(self, params: Any, options: Mapping[str, Any]) -> Any:
        """The params of one episode, given the options of its reset. Every environment takes `params`."""
        check_options(options, *self.reset_options)
        return override(params, options.get("params", {}))

    def evaluation_params(self, params: Any) -> Any:
        """The params for evaluating a policy; they differ where an environment shares data across episodes, which a
        policy must not have been trained on."""
        return params

    def render(self, state: Any, params: Any) -> Any:
        """An image of the state: (H, W, 3) uint8, or None if the environment has none."""
        return None

    def agent_position_in_image(self, state: Any, params: Any) -> tuple[float, float] | None:
        """The agent's position as fractions of the image's width and height from the upper left, for its trail."""
        return None

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        """The observation as text, for a language agent."""
        return f"Observation: {_format_obs(obs)}"

    def parse(self, text: str, params: Any) -> Any:
        """The action in a language agent's text: one of `language.actions`, or the action as JSON."""
        space, words = self.action_space(params), self.language.actions
        return parse_word(text, words, space) if words and isinstance(space, Discrete) else space.from_text(text)

    def state_fields(self, state: Any, params: Any) -> dict[str, Any]:
        """Further fields of a served session's state, as JSON values."""
        return {}

    def strategies(self, params: Any) -> Mapping[str, Callable[[], Any]]:
        """Functions that make scripted policies for this environment, by the names that commands take."""
        return {}

    def state_is_lost(self, state: Any) -> bool:
        """Whether a host environment's state no longer exists, so that the episode has to be replayed."""
        return False

    def workspace(self, state: Any, params: Any) -> Workspace | None:
        """The files of the state; None if the environment has none."""
        return None

    def recorded_outcome(self, state: Any) -> Any:
        """What a replay of the last step must not compute again, as JSON; None if there is nothing."""
        return None

    def recall(self, state: Any, outcome: Any) -> None:
        """Called before a step is replayed, with its recorded outcome if it had one."""

    def copy_at_start(self, state: Any) -> "Environment":
        """A copy that can replay the episode of `state`; a host environment may hold mutable objects of the user."""
        return copy.deepcopy(self)

    def save_state(self, state: Any, params: Any) -> bytes:
        """The state as bytes, if `host.copyable`."""
        raise NotImplementedError

    def load_state(self, data: bytes, params: Any) -> Any:
        """A new state from the bytes of `save_state`."""
        raise NotImplementedError

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
