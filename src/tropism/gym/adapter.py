"""Wraps a Gymnasium environment as an `Environment`, so that it can be checked, served, recorded and forked."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import gymnasium
from gymnasium.envs.registration import EnvSpec

from tropism.core.adapters.recipe import Recipe
from tropism.core.environment import Environment, Info
from tropism.core.episode import small_seed
from tropism.core.host import Host
from tropism.core.params import EnvParams
from tropism.core.spaces import Space
from tropism.errors import ValidationError
from tropism.gym.spaces import from_gymnasium_space

GymnasiumEnv = gymnasium.Env[Any, Any]


class AdapterParams(EnvParams):
    """`options` are passed to the reset of the Gymnasium environment unchanged."""

    options: Any = eqx.field(static=True, default=None)


@dataclass
class AdapterState:
    """A Gymnasium environment during one episode, and its last info."""

    env: GymnasiumEnv
    info: Info


class Adapter(Environment):
    """A host environment; each episode runs in its own Gymnasium environment."""

    host = Host(reseedable=False)

    recipe: Recipe
    action: Space
    observation: Space

    def default_params(self) -> AdapterParams:
        return AdapterParams()

    def configure(self, params: Any, options: Mapping[str, Any]) -> AdapterParams:
        return AdapterParams(dict(options))

    def reset(self, key: int, params: Any) -> tuple[Any, AdapterState]:
        env = self.recipe.make()
        obs, info = env.reset(seed=small_seed(key), options=params.options)
        return copy.deepcopy(obs), AdapterState(env, dict(info))

    def step(
        self, key: int, state: AdapterState, action: Any, params: Any
    ) -> tuple[Any, AdapterState, float, bool, Info]:
        obs, reward, terminated, truncated, info = state.env.step(action)
        done = bool(terminated or truncated)
        flags = {"terminated": bool(terminated), "truncated": bool(truncated)}
        # Copied, because an environment may reuse the array it returned.
        return copy.deepcopy(obs), AdapterState(state.env, dict(info)), float(reward), done, {**info, **flags}

    def info(self, state: AdapterState, params: Any) -> Info:
        return dict(state.info)

    def observation_space(self, params: Any) -> Space:
        return self.observation

    def action_space(self, params: Any) -> Space:
        return self.action

    def render(self, state: AdapterState, params: Any) -> Any:
        return state.env.render() if state.env.render_mode == "rgb_array" else None

    def close(self, state: AdapterState) -> None:
        state.env.close()


def from_gymnasium(gym_env: Any) -> Adapter:
    """Wrap a Gymnasium environment, given by its id, a function that makes it, or an instance.

    An instance is never stepped itself: each episode makes a new one from its spec, or copies it.
    """
    recipe = _recipe(gym_env)
    probe = recipe.make()
    try:
        action, observation = from_gymnasium_space(probe.action_space), from_gymnasium_space(probe.observation_space)
    finally:
        probe.close()
    return Adapter(recipe, action, observation)


def _recipe(source: Any) -> Recipe:
    if isinstance(source, str):
        env = gymnasium.make(source)
        env.close()
        return _from_spec(env.spec)
    if isinstance(source, gymnasium.Env):
        if source.spec is not None and all(wrapper.kwargs is not None for wrapper in source.spec.additional_wrappers):
            return _from_spec(source.spec)
        return Recipe(id(source), partial(copy.deepcopy, source))
    if callable(source):
        return Recipe(source, partial(_make_checked, source))
    raise ValidationError("gym_env", source, "a Gymnasium id, environment, or a function that makes one")


def _from_spec(spec: Any) -> Recipe:
    render_spec = _with_rendering(spec)
    return Recipe(repr(render_spec), partial(gymnasium.make, render_spec))


def _with_rendering(spec: EnvSpec) -> EnvSpec:
    """The spec with render_mode "rgb_array" if the environment supports it, otherwise without rendering."""
    spec = copy.deepcopy(spec)
    spec.kwargs.pop("render_mode", None)
    probe = gymnasium.make(spec)
    if "rgb_array" in probe.metadata.get("render_modes", ()):
        spec.kwargs["render_mode"] = "rgb_array"
    probe.close()
    return spec


def _make_checked(factory: Callable[[], Any]) -> GymnasiumEnv:
    env = factory()
    if not isinstance(env, gymnasium.Env):
        raise ValidationError("gym_env", env, "a function that returns a gymnasium.Env")
    return env
