"""The base class of transforms: forwarding, and the order of its hooks."""

from typing import Any

from tropism.core.environment import Environment, EnvParams, EnvState, Info, outcome
from tropism.core.episode import Timestep, step_timestep
from tropism.core.spaces import Space
from tropism.errors import ValidationError

EPISODE_STATS = ("episode_return", "episode_length")  # info keys, of the episode that the step belongs to


class TransformState(EnvState):
    """The state of the inner environment, and the memory of the transform."""

    inner: Any
    memory: Any


class Transform(Environment):
    """Forwards everything to `env`; a transform overrides the hooks `start`, `first`, `after`."""

    env: Environment

    def __check_init__(self) -> None:
        if not isinstance(self.env, Environment):
            raise ValidationError("env", self.env, "an Environment")
        if not self.env.traced:
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

    def info(self, state: TransformState, params: Any) -> Info:
        return self.env.info(state.inner, self.inner_params(state.memory, params))

    def default_params(self) -> EnvParams:
        return self.env.default_params()

    @property
    def reset_options(self) -> tuple[str, ...]:
        return self.env.reset_options

    def configure(self, params: Any, options: Any) -> Any:
        return self.env.configure(params, options)

    def observation_space(self, params: Any) -> Space:
        return self.env.observation_space(params)

    def action_space(self, params: Any) -> Space:
        return self.env.action_space(params)

    def render(self, state: TransformState, params: Any) -> Any:
        return self.env.render(state.inner, self.inner_params(state.memory, params))

    def describe(self, state: TransformState, obs: Any, params: Any) -> str:
        return self.env.describe(state.inner, obs, self.inner_params(state.memory, params))

    def agent_position_in_image(self, state: TransformState, params: Any) -> tuple[float, float] | None:
        return self.env.agent_position_in_image(state.inner, self.inner_params(state.memory, params))

    def action_words(self) -> tuple[str, ...]:
        return self.env.action_words()

    def click_actions(self) -> tuple[tuple[Any, ...], ...]:
        return self.env.click_actions()

    def observation_words(self) -> tuple[str, ...]:
        return self.env.observation_words()

    def parse(self, text: str, params: Any) -> Any:
        return self.env.parse(text, params)
