"""PlumeNav with a user's Python objects as parts: the same search, stepped on the host."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tropism.core.adapters.language import Language
from tropism.core.compiled.program import host_device
from tropism.core.environment import Environment, Info
from tropism.core.host import Host
from tropism.core.spaces import Space
from tropism.envs.plume.host_search import HostSearch
from tropism.envs.plume.host_state import PlumeHostState
from tropism.envs.plume.nav import PlumeNav, PlumeNavParams, PlumeNavState
from tropism.envs.plume.parts import PlumeParts
from tropism.envs.plume.steps import PRIVATE_INFO


class PlumeHost(Environment):
    """`base` with the components of `parts` in place of some of its own.

    `base` has `UserSensor`, `UserMotion`, `UserReward` and `PlaceholderField` in place of user parts. The user's
    objects run the episode that started last; earlier ones, in other sessions, continue with copies of them.
    """

    host = Host(reseedable=False, uses_keys=False, complete_info=True)
    private_info = PRIVATE_INFO

    search: HostSearch

    def __init__(self, base: PlumeNav, parts: PlumeParts):
        self.search = HostSearch(base, parts)

    @property
    def base(self) -> PlumeNav:
        return self.search.base

    @property
    def parts(self) -> PlumeParts:
        return self.search.parts

    def default_params(self) -> PlumeNavParams:
        return self.base.default_params()

    @property
    def reset_options(self) -> tuple[str, ...]:
        return self.base.reset_options

    def configure(self, params: Any, options: Mapping[str, Any]) -> Any:
        return self.base.configure(params, options)

    def reset(self, key: int, params: Any) -> tuple[Any, PlumeHostState]:
        return self.search.reset(key, params)

    def step(self, key: int, state: PlumeHostState, action: Any, params: Any) -> tuple[Any, ...]:
        return state.episode.search.step(state, action)

    def info(self, state: PlumeHostState, params: Any) -> Info:
        return self.search.info(state)

    def observation_space(self, params: Any) -> Space:
        return self.base.observation_space(params)

    def action_space(self, params: Any) -> Space:
        return self.base.action_space(params)

    def copy_at_start(self, state: PlumeHostState) -> Environment:
        return copy.deepcopy(self, {id(self.search): state.episode.search.copy_at_start(state.episode)})

    def render(self, state: PlumeHostState, params: Any) -> NDArray[Any]:
        with jax.default_device(host_device()):
            state = state.episode.search.resume(state)
            _, _, field, field_state = state.episode.search.host_scene_parts(state, params)
            return np.array(self.base.render(self._pure(state, field_state), replace(params, field=field)))

    def describe(self, state: PlumeHostState, obs: Any, params: Any) -> str:
        return self.base.describe(self._pure(state, state.field), obs, params)

    def agent_position_in_image(self, state: PlumeHostState, params: Any) -> tuple[float, float] | None:
        return self.base.agent_position_in_image(self._pure(state, state.field), params)

    @property
    def language(self) -> Language:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Language(self.base.motion.words)

    def _pure(self, state: PlumeHostState, field: Any) -> PlumeNavState:
        trail = jnp.asarray(np.reshape(state.trail, (-1, 2)), float)
        return PlumeNavState(jnp.int32(state.step_count), self.search.pose(state), field, state.memory, trail)
