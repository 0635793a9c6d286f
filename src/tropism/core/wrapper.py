"""The base class of environments that wrap another one."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tropism.core.adapters.language import Language
from tropism.core.environment import Environment, EnvParams, Info
from tropism.core.host import Host
from tropism.core.spaces import Space
from tropism.core.workspace import Workspace


class Wrapper(Environment):
    """Forwards everything to `env`; a subclass overrides what it changes.

    A subclass with another state or other params overrides `unwrap`, too.
    """

    env: Environment

    def unwrap(self, state: Any, params: Any) -> tuple[Any, Any]:
        """The state and the params of `env`."""
        return state, params

    @property
    def host(self) -> Host | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The traits of `env`, whose steps do not have the info that a subclass adds."""
        host, kind = self.env.host, type(self)
        if host is None or (kind.info is Wrapper.info and kind.step is Wrapper.step):
            return host
        return replace(host, complete_info=False)

    @property
    def endless(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.endless

    @property
    def language(self) -> Language:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.language

    @property
    def reward_threshold(self) -> float | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.reward_threshold

    @property
    def private_info(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.private_info

    def default_params(self) -> EnvParams:
        return self.env.default_params()

    def reset(self, key: Any, params: Any) -> tuple[Any, Any]:
        return self.env.reset(key, params)

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        return self.env.step(key, state, action, params)

    def observation_space(self, params: Any) -> Space:
        return self.env.observation_space(params)

    def action_space(self, params: Any) -> Space:
        return self.env.action_space(params)

    def restart(self, key: Any, state: Any, params: Any) -> tuple[Any, Any]:
        return self.env.restart(key, state, params)

    def info(self, state: Any, params: Any) -> Info:
        return self.env.info(*self.unwrap(state, params))

    @property
    def reset_options(self) -> tuple[str, ...]:
        return self.env.reset_options

    def configure(self, params: Any, options: Mapping[str, Any]) -> Any:
        return self.env.configure(params, options)

    def evaluation_params(self, params: Any) -> Any:
        return self.env.evaluation_params(params)

    def render(self, state: Any, params: Any) -> Any:
        return self.env.render(*self.unwrap(state, params))

    def agent_position_in_image(self, state: Any, params: Any) -> tuple[float, float] | None:
        return self.env.agent_position_in_image(*self.unwrap(state, params))

    def state_fields(self, state: Any, params: Any) -> dict[str, Any]:
        return self.env.state_fields(*self.unwrap(state, params))

    def strategies(self, params: Any) -> Mapping[str, Callable[[], Any]]:
        return self.env.strategies(params)

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        inner, inner_params = self.unwrap(state, params)
        return self.env.describe(inner, obs, inner_params)

    def parse(self, text: str, params: Any) -> Any:
        return self.env.parse(text, params)

    def state_is_lost(self, state: Any) -> bool:
        return self.env.state_is_lost(state)

    def workspace(self, state: Any, params: Any) -> Workspace | None:
        return self.env.workspace(*self.unwrap(state, params))

    def recorded_outcome(self, state: Any) -> Any:
        return self.env.recorded_outcome(self.unwrap(state, None)[0])

    def recall(self, state: Any, outcome: Any) -> None:
        self.env.recall(self.unwrap(state, None)[0], outcome)

    def copy_at_start(self, state: Any) -> Environment:
        return copy.deepcopy(self, {id(self.env): self.env.copy_at_start(self.unwrap(state, None)[0])})

    def save_state(self, state: Any, params: Any) -> bytes:
        return self.env.save_state(*self.unwrap(state, params))

    def load_state(self, data: bytes, params: Any) -> Any:
        return self.env.load_state(data, params)

    def close(self, state: Any) -> None:
        self.env.close(state)
