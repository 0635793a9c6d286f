"""A host environment each of whose episodes lives in a process of its own: a crash ends that process only."""

import io
import os
import pickle
import sys
from collections.abc import Mapping
from types import FunctionType
from typing import Any, ClassVar

import equinox as eqx

from tropism.core.adapters.class_based import as_environment, name_of
from tropism.core.environment import Environment, Info
from tropism.core.registry import share_source
from tropism.core.spaces import Space
from tropism.errors import ValidationError
from tropism.isolation.process import Child

EXPECTED = "an environment of an importable module, whose fields can be pickled"


def _same(name: str) -> Any:
    """What the environment inside says of itself."""
    return property(lambda self: getattr(self.env, name))


class Apart(Environment):
    """`env`, whose state is another process's; the state here is a handle of that.

    What needs no state (spaces, options, words that mean an action) is asked of `env` itself, in this process.
    `modules` are what is imported before a process is forked.
    """

    traced: ClassVar[bool] = False
    isolated: ClassVar[bool] = True
    interruptible: ClassVar[bool] = True
    replayable: ClassVar[Any] = _same("replayable")
    reseedable: ClassVar[Any] = _same("reseedable")
    seedable: ClassVar[Any] = _same("seedable")
    takes_episode_id: ClassVar[Any] = _same("takes_episode_id")
    endless: ClassVar[Any] = _same("endless")
    action_message: ClassVar[Any] = _same("action_message")
    observation_message: ClassVar[Any] = _same("observation_message")
    display_name: ClassVar[Any] = _same("display_name")
    reset_options: ClassVar[Any] = _same("reset_options")

    env: Environment
    modules: tuple[str, ...] = eqx.field(static=True)

    def default_params(self) -> Any:
        return self.env.default_params()

    def configure(self, params: Any, options: Mapping[str, Any]) -> Any:
        return self.env.configure(params, options)

    def reset(self, key: Any, params: Any) -> tuple[Any, Child]:
        child = self.child()
        try:
            return child.ask("reset", params, key), child
        except BaseException:
            child.end()
            raise

    def child(self) -> Child:
        """A process that has the environment, and no episode yet."""
        return Child(name_of(self), self.modules, self.env)

    def step(self, key: Any, state: Child, action: Any, params: Any) -> tuple[Any, Child, Any, Any, Info]:
        obs, reward, done, info = state.ask("step", params, key, action)
        return obs, state, reward, done, info

    def info(self, state: Child, params: Any) -> Info:
        return state.ask("info", params) if self._has("info") else {}

    def render(self, state: Child, params: Any) -> Any:
        return state.ask("render", params) if self._has("render") else None

    def agent_position_in_image(self, state: Child, params: Any) -> tuple[float, float] | None:
        return state.ask("agent_position_in_image", params) if self._has("agent_position_in_image") else None

    def describe(self, state: Child, obs: Any, params: Any) -> str:
        return state.ask("describe", params, obs) if self._has("describe") else super().describe(state, obs, params)

    def _has(self, method: str) -> bool:
        """Whether there is anything to ask for: what all environments inherit needs no state."""
        return getattr(type(self.env), method) is not getattr(Environment, method)

    def state_is_lost(self, state: Any) -> bool:
        return isinstance(state, Child) and not state.alive

    def close(self, state: Child) -> None:
        state.close()

    def observation_space(self, params: Any) -> Space:
        return self.env.observation_space(params)

    def action_space(self, params: Any) -> Space:
        return self.env.action_space(params)

    def action_words(self) -> tuple[str, ...]:
        return self.env.action_words()

    def click_actions(self) -> tuple[tuple[Any, ...], ...]:
        return self.env.click_actions()

    def observation_words(self) -> tuple[str, ...]:
        return self.env.observation_words()

    def parse(self, text: str, params: Any) -> Any:
        return self.env.parse(text, params)

    def message(self, obs: Any, info: Info) -> dict[str, Any]:
        return self.env.message(obs, info)


def apart(env: Any) -> Apart:
    """A host environment with a process for each episode; one that cannot be had there is refused now.

    This isolates crashes. It is no sandbox: the process may do whatever this one may.
    """
    env = as_environment(env)
    if isinstance(env, Apart):
        return env
    if not isinstance(env, Environment) or env.traced:
        raise ValidationError(
            "env", env, "a host environment; a pure one is compiled, and has no code that could crash"
        )
    if not hasattr(os, "fork"):
        raise ValidationError("system", sys.platform, "one with fork, to start processes quickly")
    try:
        made = Apart(env, _modules(env))
        made.child().end()
        share_source(env, made)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        message = f"{name_of(env)} cannot live in a process of its own ({why}); expected {EXPECTED}"
        raise ValidationError("env", env, EXPECTED, message) from error
    return made


class _Noting(pickle.Pickler):
    """Notes where the classes and functions come from that unpickling will look for."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), pickle.HIGHEST_PROTOCOL)
        self.modules: set[str] = set()

    def persistent_id(self, obj: Any) -> None:
        for named in (obj, type(obj)):
            if isinstance(named, type | FunctionType):
                self.modules.add(named.__module__)


def _modules(env: Environment) -> tuple[str, ...]:
    noting = _Noting()
    noting.dump(env)
    return tuple(sorted(noting.modules - {"builtins", "__main__"}))
