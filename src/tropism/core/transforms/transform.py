"""The base class of transforms: the order of its hooks."""

from typing import Any

from tropism.core.environment import Environment, EnvState, Info, outcome
from tropism.core.episode import Timestep, step_timestep
from tropism.core.wrapper import Wrapper
from tropism.errors import ValidationError

EPISODE_STATS = ("episode_return", "episode_length")  # info keys, of the episode that the step belongs to


class TransformState(EnvState):
    """The state of the inner environment, and the memory of the transform."""

    inner: Any
    memory: Any


class Transform(Wrapper):
    """A wrapper of a pure environment; a transform overrides the hooks `start`, `first`, `after`."""

    def __check_init__(self) -> None:
        if not isinstance(self.env, Environment):
            raise ValidationError("env", self.env, "an Environment")
        if not self.env.pure:
            raise ValidationError("env", self.env, "a pure environment; a host environment cannot be transformed")

    def start(self, key: Any, memory: Any, params: Any) -> Any:
        """The memory at the start of an episode, given that of the previous one (None at a reset)."""
        return ()

    def first(self, memory: Any, obs: Any, params: Any) -> tuple[Any, Any]:
        """The first observation of an episode: `(obs, memory)`."""
        return obs, memory

    def after(self, memory: Any, timestep: Timestep, params: Any) -> tuple[Timestep, Any]:
        """The outcome of a step: `(timestep, memory)`."""
        return timestep, memory

    def unwrap(self, state: TransformState, params: Any) -> tuple[Any, Any]:
        return state.inner, self.inner_params(state.memory, params)

    def inner_params(self, memory: Any, params: Any) -> Any:
        """The params of the inner environment."""
        return params

    def reset(self, key: Any, params: Any) -> tuple[Any, TransformState]:
        memory = self.start(key, None, params)
        obs, inner = self.env.reset(key, self.inner_params(memory, params))
        return self._first_state(memory, obs, inner, params)

    def restart(self, key: Any, state: TransformState, params: Any) -> tuple[Any, TransformState]:
        memory = self.start(key, state.memory, params)
        obs, inner = self.env.restart(key, state.inner, self.inner_params(memory, params))
        return self._first_state(memory, obs, inner, params)

    def _first_state(self, memory: Any, obs: Any, inner: Any, params: Any) -> tuple[Any, TransformState]:
        obs, memory = self.first(memory, obs, params)
        return obs, TransformState(inner.time, inner, memory)

    def step(self, key: Any, state: TransformState, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        inner_params = self.inner_params(state.memory, params)
        obs, inner, reward, done, info = self.env.step(key, state.inner, action, inner_params)
        timestep = step_timestep(self.env, obs, inner, reward, done, info, inner_params)
        timestep, memory = self.after(state.memory, timestep, params)
        state = TransformState(inner.time, inner, memory)
        rest = {**self.info(state, params), **timestep.info}
        return timestep.obs, state, timestep.reward, *outcome(timestep.terminated, timestep.truncated, rest)
