"""Registers every environment id with Gymnasium, as `tropism/<id>`."""

from collections.abc import Callable, Mapping
from inspect import currentframe, signature
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from tropism.core.environment import Environment
from tropism.core.native.choice import EngineName
from tropism.core.params import override
from tropism.core.registry import EnvironmentSpec, find, make, on_register
from tropism.envs.plume.nav import PlumeNav
from tropism.gym.env import GymEnv, step_limit, to_gymnasium
from tropism.gym.plume_env import PlumeEnv
from tropism.gym.vector import GymVectorEnv, check_version

NAMESPACE = "tropism"
CLASSES: dict[Any, Callable[..., GymEnv]] = {PlumeNav: PlumeEnv}  # by the environment's class


def make_env(
    env_id: str, render_mode: Any = None, params: Any = None, engine: EngineName = "auto", **arguments: Any
) -> GymEnv:
    """The entry point of `gymnasium.make`; `arguments` are passed to the environment's constructor.

    An environment in `CLASSES` is made by that class, unless arguments are those of the environment's own constructor.
    """
    limit = _requested_limit()
    kind = CLASSES.get(find(env_id).factory)
    if kind is not None and set(arguments) <= set(signature(kind).parameters):
        arguments |= {} if limit is None or "max_steps" in arguments else {"max_steps": limit}
        return kind(render_mode=render_mode, params=params, engine=engine, **arguments)
    env, params = _make(env_id, params, arguments, limit)
    return to_gymnasium(env, params, render_mode, engine=engine)


def _requested_limit() -> int | None:
    """`max_episode_steps` of the call of `gymnasium.make` that called the entry point.

    Gymnasium does not pass it on; it wraps the environment, which would still end earlier by a limit of its own.
    """
    frame = currentframe()
    caller = frame and frame.f_back and frame.f_back.f_back
    if caller is None or caller.f_code is not gymnasium.make.__code__:
        return None
    limit = caller.f_locals.get("max_episode_steps")
    return limit if limit is not None and limit > 0 else None


def _make(env_id: str, params: Any, arguments: dict[str, Any], limit: int | None) -> tuple[Any, Any]:
    """The environment and its params, with this step limit unless `params` or `arguments` set one."""
    env, values = make(env_id, params=params, **arguments)
    own = (isinstance(params, Mapping) and "max_steps" in params) or "max_steps" in arguments
    if limit is None or own or step_limit(values) is None:
        return env, values
    return env, override(values, {"max_steps": limit})


# `gymnasium.make` reads the render modes here, to offer rgb_array_list as well.
make_env.metadata = GymEnv.metadata  # pyright: ignore[reportFunctionMemberAccess]


def make_vector_env(
    env_id: str = "",
    num_envs: Any = 1,
    render_mode: Any = None,
    autoreset_mode: Any = "next_step",
    params: Any = None,
    engine: EngineName = "auto",
    num_threads: int | None = None,
    max_episode_steps: int | None = None,
    **arguments: Any,
) -> GymVectorEnv:
    """The entry point of `gymnasium.make_vec`; Gymnasium 0.29 calls it without the id."""
    check_version()
    env, params = _make(env_id, params, arguments, max_episode_steps)
    options = {"autoreset_mode": autoreset_mode, "render_mode": render_mode}
    return GymVectorEnv(env, num_envs, params, **options, engine=engine, num_threads=num_threads)


def register_id(spec: EnvironmentSpec) -> None:
    """Lifecycle and time limits are part of the environment, so Gymnasium's wrappers are disabled."""
    id = f"{NAMESPACE}/{spec.id}"
    gymnasium.registry[id] = EnvSpec(
        id=id,
        entry_point=f"{__name__}:make_env",
        vector_entry_point=f"{__name__}:make_vector_env" if spec.traced else None,
        reward_threshold=_reward_threshold(spec),
        order_enforce=False,
        disable_env_checker=True,
        kwargs={"env_id": spec.id},
    )


def _reward_threshold(spec: EnvironmentSpec) -> float | None:
    kind = spec.factory
    return kind.reward_threshold if isinstance(kind, type) and issubclass(kind, Environment) else None


def register_all() -> None:
    """Register existing ids now and later ones as they are added."""
    on_register(register_id)
