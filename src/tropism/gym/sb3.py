"""A compiled batch of environments as a `VecEnv` of Stable-Baselines3."""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tropism.core.registry import make
from tropism.core.spaces.space import check_count
from tropism.errors import StateError, ValidationError, require_extra
from tropism.gym.vector import GymVectorEnv

Infos = list[dict[str, Any]]


class BatchVecEnv:
    """The methods of `VecEnv`, for a `GymVectorEnv` that restarts finished environments in the same step.

    All environments are one object, so attributes and methods are those of the vector. The info of a running
    environment is empty, because a dict for each costs more than the step; `vector` has the infos of all.
    """

    def __init__(self, vector: GymVectorEnv):
        self.vector = vector
        self.num_envs = vector.num_envs
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space
        self.metadata = vector.metadata
        self.render_mode = vector.render_mode
        self.reset_infos: Infos = [{} for _ in range(self.num_envs)]
        self._actions: Any = None
        self._seed: int | None = None
        self._options: Any = None

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed environment i with seed + i at the next reset."""
        self._seed = seed
        return [None if seed is None else seed + number for number in range(self.num_envs)]

    def set_options(self, options: Any = None) -> None:
        """Pass options to the next reset; all environments have the same."""
        if isinstance(options, list):
            if any(each != options[0] for each in options):
                raise ValidationError("options", options, "the same options for all environments")
            options = options[0] if options else None
        self._options = options or None

    def reset(self) -> Any:
        obs, infos = self.vector.reset(seed=self._seed, options=self._options)
        self._seed = self._options = None
        names = [name for name in infos if not name.startswith("_")]
        self.reset_infos = [{name: infos[name][number] for name in names} for number in range(self.num_envs)]
        return obs

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Any, NDArray[Any], NDArray[Any], Infos]:
        if self._actions is None:
            raise StateError("actions", None, "step_async(actions) first", "cannot wait: call step_async first")
        actions, self._actions = self._actions, None
        obs, reward, terminated, truncated, infos = self.vector.step(actions)
        done = terminated | truncated
        result: Infos = [{} for _ in range(self.num_envs)]
        for number in np.flatnonzero(done):
            last = infos["final_info"]
            result[number] = {name: last[name][number] for name in last if not name.startswith("_")}
            result[number]["terminal_observation"] = infos["final_obs"][number]
            result[number]["TimeLimit.truncated"] = bool(truncated[number] and not terminated[number])
        return obs, reward.astype(np.float32), done, result

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[Any], Infos]:
        self.step_async(actions)
        return self.step_wait()

    def close(self) -> None:
        self.vector.close()

    def get_images(self) -> Sequence[Any]:
        return self.vector.render() or [None] * self.num_envs

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        value = getattr(self if attr_name in self.__dict__ else self.vector, attr_name)
        return self._per_env(value, indices)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        if len(self._indices(indices)) < self.num_envs:
            raise ValidationError("indices", indices, "None: the environments are one object, with one value for all")
        setattr(self.vector, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method of the vector once; a result with one entry per environment is split."""
        return self._per_env(getattr(self.vector, method_name)(*args, **kwargs), indices)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False for _ in self._indices(indices)]

    def _per_env(self, value: Any, indices: Any) -> list[Any]:
        split = isinstance(value, tuple | list | np.ndarray) and len(value) == self.num_envs
        return [value[number] if split else value for number in self._indices(indices)]

    def _indices(self, indices: Any) -> Sequence[int]:
        if indices is None:
            return range(self.num_envs)
        return list(indices) if isinstance(indices, Iterable) else [indices]


@cache
def vec_env_class() -> Any:
    """`BatchVecEnv` as a subclass of Stable-Baselines3's `VecEnv`, which its algorithms require."""
    require_extra("sb3", "tropism.gym.sb3.make_vec_env", "stable_baselines3")
    base = import_module("stable_baselines3.common.vec_env").VecEnv
    return type("CompiledVecEnv", (BatchVecEnv, base), {"__doc__": BatchVecEnv.__doc__, "__module__": __name__})


def make_vec_env(id: str, n_envs: int = 1, *, seed: int | None = None, params: Any = None, **arguments: Any) -> Any:
    """`n_envs` environments of this id in one compiled step, for the algorithms of Stable-Baselines3.

    `arguments` are `render_mode`, `engine` and `num_threads` of the vector, and those of the environment.
    """
    kind = vec_env_class()
    options = {name: arguments.pop(name) for name in ("render_mode", "engine", "num_threads") if name in arguments}
    env, params = make(id, params=params, **arguments)
    vector = GymVectorEnv(env, check_count("n_envs", n_envs), params, autoreset_mode="same_step", **options)
    vec_env = kind(vector)
    vec_env.seed(seed)
    return vec_env
