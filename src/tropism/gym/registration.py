"""Registers every environment id with Gymnasium, as `tropism/<id>`."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from tropism.core.native.choice import EngineName
from tropism.core.registry import EnvironmentSpec, make, on_register
from tropism.gym.env import GymEnv, to_gymnasium
from tropism.gym.plume_env import PlumeEnv
from tropism.gym.vector import GymVectorEnv, check_version

NAMESPACE = "tropism"
CLASSES: dict[str, Callable[..., GymEnv]] = {"PlumeNav-v0": PlumeEnv}


def make_env(
    env_id: str, render_mode: Any = None, params: Any = None, engine: EngineName = "auto", **arguments: Any
) -> GymEnv:
    """The entry point of `gymnasium.make`; `arguments` are passed to the environment's constructor.

    An id in `CLASSES` is made by its class, unless arguments are those of the environment's own constructor.
    """
    kind = CLASSES.get(env_id)
    if kind is not None and set(arguments) <= set(signature(kind).parameters):
        return kind(render_mode=render_mode, params=params, engine=engine, **arguments)
    env, params = make(env_id, params=params, **arguments)
    return to_gymnasium(env, params, render_mode, engine=engine)


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
    **arguments: Any,
) -> GymVectorEnv:
    """The entry point of `gymnasium.make_vec`; Gymnasium 0.29 calls it without the id."""
    check_version()
    env, params = make(env_id, params=params, **arguments)
    options = {"autoreset_mode": autoreset_mode, "render_mode": render_mode}
    return GymVectorEnv(env, num_envs, params, **options, engine=engine, num_threads=num_threads)


def register_id(spec: EnvironmentSpec) -> None:
    """Lifecycle and time limits are part of the environment, so Gymnasium's wrappers are disabled."""
    id = f"{NAMESPACE}/{spec.id}"
    gymnasium.registry[id] = EnvSpec(
        id=id,
        entry_point=f"{__name__}:make_env",
        vector_entry_point=f"{__name__}:make_vector_env" if spec.traced else None,
        order_enforce=False,
        disable_env_checker=True,
        kwargs={"env_id": spec.id},
    )


def register_all() -> None:
    """Register existing ids now and later ones as they are added."""
    on_register(register_id)
