"""A Gymnasium environment as one of ours, so that it can be checked, served, recorded and forked."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import gymnasium
from gymnasium.envs.registration import EnvSpec

from tropism.core.adapters.recipe import Recipe
from tropism.core.environment import Environment, EnvParams, Info
from tropism.core.episode import small_seed
from tropism.core.spaces import Space
from tropism.errors import ValidationError
from tropism.gym.spaces import from_gymnasium_space

GymnasiumEnv = gymnasium.Env[Any, Any]


class AdapterParams(EnvParams):
    """`options` are those of the reset, handed to the Gymnasium environment as they are."""

    options: Any = eqx.field(static=True, default=None)


@dataclass
class Live:
    """The state: a Gymnasium environment in the middle of one episode, and what it said last."""

    env: GymnasiumEnv
    info: Info


class Adapter(Environment):
    """A host environment; each episode lives in a Gymnasium environment of its own."""

    traced: ClassVar[bool] = False
    reseedable: ClassVar[bool] = False

    recipe: Recipe
    action: Space
    observation: Space

    def default_params(self) -> AdapterParams:
        return AdapterParams()

    def configure(self, params: Any, options: Mapping[str, Any]) -> AdapterParams:
        return AdapterParams(dict(options))

    def reset(self, key: int, params: Any) -> tuple[Any, Live]:
        env = self.recipe.make()
        obs, info = env.reset(seed=small_seed(key), options=params.options)
        return copy.deepcopy(obs), Live(env, dict(info))

    def step(self, key: int, state: Live, action: Any, params: Any) -> tuple[Any, Live, float, bool, Info]:
        obs, reward, terminated, truncated, info = state.env.step(action)
        done = bool(terminated or truncated)
        flags = {"terminated": bool(terminated), "truncated": bool(truncated)}
        # Copied, because an environment may go on writing into the array it returned.
        return copy.deepcopy(obs), Live(state.env, dict(info)), float(reward), done, {**info, **flags}

    def info(self, state: Live, params: Any) -> Info:
        return dict(state.info)

    def observation_space(self, params: Any) -> Space:
        return self.observation

    def action_space(self, params: Any) -> Space:
        return self.action

    def render(self, state: Live, params: Any) -> Any:
        return state.env.render() if state.env.render_mode == "rgb_array" else None

    def close(self, state: Live) -> None:
        state.env.close()


def from_gymnasium(gym_env: Any) -> Adapter:
    """A Gymnasium environment, given by its id, by a function that makes it, or as one instance.

    An instance is never stepped itself: each episode makes it again from its spec, or copies it.
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
        made = gymnasium.make(source)
        made.close()
        return _from_spec(made.spec)
    if isinstance(source, gymnasium.Env):
        if source.spec is not None and all(wrapper.kwargs is not None for wrapper in source.spec.additional_wrappers):
            return _from_spec(source.spec)
        return Recipe(id(source), partial(copy.deepcopy, source))
    if callable(source):
        return Recipe(source, partial(_checked, source))
    raise ValidationError("gym_env", source, "a Gymnasium id, environment, or a function that makes one")


def _from_spec(spec: Any) -> Recipe:
    drawn = _drawn(spec)
    return Recipe(repr(drawn), partial(gymnasium.make, drawn))


def _drawn(spec: EnvSpec) -> EnvSpec:
    """The spec with pictures, where the environment can make them, and never with a window."""
    spec = copy.deepcopy(spec)
    spec.kwargs.pop("render_mode", None)
    probe = gymnasium.make(spec)
    if "rgb_array" in probe.metadata.get("render_modes", ()):
        spec.kwargs["render_mode"] = "rgb_array"
    probe.close()
    return spec


def _checked(factory: Callable[[], Any]) -> GymnasiumEnv:
    env = factory()
    if not isinstance(env, gymnasium.Env):
        raise ValidationError("gym_env", env, "a function that returns a gymnasium.Env")
    return env
