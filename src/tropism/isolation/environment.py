"""A host environment that runs each episode in its own process, so that a crash ends only that episode."""

import io
import os
import pickle
import sys
from dataclasses import replace
from types import FunctionType
from typing import Any

import equinox as eqx

from tropism.core.adapters.class_based import as_environment, name_of
from tropism.core.environment import Environment, Info
from tropism.core.host import Host
from tropism.core.registry import copy_source
from tropism.core.wrapper import Wrapper
from tropism.errors import ValidationError
from tropism.isolation.process import EpisodeProcess

EXPECTED = "an environment from an importable module, with picklable fields"


class IsolatedEnvironment(Wrapper):
    """Runs `env` in worker processes; the state is a handle of the episode's process.

    Methods that need no state (spaces, options, `parse`) run on `env` in this process.
    `modules` are imported by the fork server before it forks a worker.
    """

    modules: tuple[str, ...] = eqx.field(static=True)

    @property
    def host(self) -> Host:  # pyright: ignore[reportIncompatibleVariableOverride]
        return replace(self.env.traits, copyable=False, isolated=True, interruptible=True)

    def reset(self, key: Any, params: Any) -> tuple[Any, EpisodeProcess]:
        process = self.start_process()
        try:
            return process.call("reset", params, key), process
        except BaseException:
            process.kill()
            raise

    def start_process(self) -> EpisodeProcess:
        """A process that has the environment, before its first reset."""
        return EpisodeProcess(name_of(self), self.modules, self.env)

    def step(
        self, key: Any, state: EpisodeProcess, action: Any, params: Any
    ) -> tuple[Any, EpisodeProcess, Any, Any, Info]:
        obs, reward, done, info = state.call("step", params, key, action)
        return obs, state, reward, done, info

    def info(self, state: EpisodeProcess, params: Any) -> Info:
        return state.call("info", params) if self._overrides("info") else {}

    def render(self, state: EpisodeProcess, params: Any) -> Any:
        return state.call("render", params) if self._overrides("render") else None

    def agent_position_in_image(self, state: EpisodeProcess, params: Any) -> tuple[float, float] | None:
        return state.call("agent_position_in_image", params) if self._overrides("agent_position_in_image") else None

    def state_fields(self, state: EpisodeProcess, params: Any) -> dict[str, Any]:
        return state.call("state_fields", params) if self._overrides("state_fields") else {}

    def describe(self, state: EpisodeProcess, obs: Any, params: Any) -> str:
        return (
            state.call("describe", params, obs)
            if self._overrides("describe")
            else Environment.describe(self, state, obs, params)
        )

    def _overrides(self, method: str) -> bool:
        """Whether the class overrides the method; the inherited ones need no state, so no call to the process."""
        return getattr(type(self.env), method) is not getattr(Environment, method)

    def state_is_lost(self, state: Any) -> bool:
        return isinstance(state, EpisodeProcess) and not state.alive

    def workspace(self, state: EpisodeProcess, params: Any) -> None:
        """None: files of another process cannot be reached."""

    def recorded_outcome(self, state: EpisodeProcess) -> None:
        """None: a replay computes everything again."""

    def copy_at_start(self, state: EpisodeProcess) -> Environment:
        """Each process starts with `env` as it is here, where no episode changes it."""
        return Environment.copy_at_start(self, state)

    def close(self, state: EpisodeProcess) -> None:
        state.close()


def isolate(env: Any) -> IsolatedEnvironment:
    """Wrap a host environment so that each episode runs in its own process.

    One process is started at once, so that an environment that cannot be sent there is rejected here.
    This isolates crashes. It is not a sandbox: the process has the same rights as this one.
    """
    env = as_environment(env)
    if isinstance(env, IsolatedEnvironment):
        return env
    if not isinstance(env, Environment) or env.pure:
        raise ValidationError(
            "env", env, "a host environment; a pure one is compiled and runs no Python that could crash"
        )
    if not hasattr(os, "fork"):
        raise ValidationError("system", sys.platform, "a system with os.fork")
    try:
        isolated = IsolatedEnvironment(env, _modules(env))
        isolated.start_process().kill()
        copy_source(env, isolated)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        message = f"{name_of(env)} cannot run in its own process ({reason}); expected {EXPECTED}"
        raise ValidationError("env", env, EXPECTED, message) from error
    return isolated


class _ModuleCollector(pickle.Pickler):
    """Collects the modules that unpickling will import."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), pickle.HIGHEST_PROTOCOL)
        self.modules: set[str] = set()

    def persistent_id(self, obj: Any) -> None:
        for definition in (obj, type(obj)):
            if isinstance(definition, type | FunctionType):
                self.modules.add(definition.__module__)


def _modules(env: Environment) -> tuple[str, ...]:
    collector = _ModuleCollector()
    collector.dump(env)
    return tuple(sorted(collector.modules - {"builtins", "__main__"}))
