"""A `gymnasium.vector.VectorEnv` whose environments run on a Ray cluster, for host environments."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from tropism.core.spaces.space import check_count
from tropism.errors import ProcessError
from tropism.gym.vector import check_version, expand_seeds
from tropism.scale.ray import Ray

MakeEnv = Callable[[], Env[Any, Any]]


class RayVectorEnv(VectorEnv):  # pyright: ignore[reportMissingTypeArgument]; not generic before Gymnasium 1.0
    """Equals Gymnasium's `SyncVectorEnv` of the same environments; each actor steps an equal part of them.

    `make_env` makes one environment, in the actor: `partial(gymnasium.make, "tropism.gym:tropism/Coding-v0")`.
    `address` and `actors` are those of `Ray`, and `options` those of `SyncVectorEnv`. If an actor dies, the episodes in
    it are lost: the call raises ProcessError, and the next `reset` starts another actor.
    """

    def __init__(
        self, make_env: MakeEnv, num_envs: int, *, address: str | None = None, actors: int | None = None, **options: Any
    ):
        self.closed = True  # until construction succeeds
        check_version()
        self.num_envs = check_count("num_envs", num_envs)
        self._cluster = Ray(address, actors)
        self._ray = self._cluster.api
        count = min(self._cluster.workers, num_envs)
        self._parts = [part.tolist() for part in np.array_split(np.arange(num_envs), count)]
        self._make_env, self._options = make_env, options
        self._actors = [self._make_actor(len(part)) for part in self._parts]
        spaces = self._ray.get(self._actors[0].spaces.remote())
        self.single_observation_space, self.single_action_space, self.metadata = spaces
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.closed = False

    def _make_actor(self, size: int) -> Any:
        actor_class = self._ray.remote(num_cpus=1, max_restarts=0)(VectorActor)
        return actor_class.remote(self._make_env, size, self._options)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._replace_dead_actors()
        seeds = expand_seeds(seed, self.num_envs)
        results = self._call("reset", [([seeds[i] for i in part], options) for part in self._parts])
        return self._join_obs([obs for obs, _ in results]), self._join_infos([info for _, info in results])

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        each = list(iterate(self.action_space, actions))
        results = self._call("step", [([each[i] for i in part],) for part in self._parts])
        obs, *arrays, infos = zip(*results, strict=True)
        reward, terminated, truncated = (np.concatenate(parts) for parts in arrays)
        return self._join_obs(obs), reward, terminated, truncated, self._join_infos(infos)

    def close_extras(self, **_: Any) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._cluster.close()

    def _call(self, method: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        calls = zip(self._actors, arguments, strict=True)
        references = [getattr(actor, method).remote(*each) for actor, each in calls]
        try:
            return self._ray.get(references)
        except self._ray.exceptions.RayActorError as error:
            message = f"an actor died during {method}, with the episodes of its environments; call reset()"
            raise ProcessError("actor", method, "call reset()", message) from error
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error

    def _replace_dead_actors(self) -> None:
        for number, actor in enumerate(self._actors):
            try:
                self._ray.get(actor.spaces.remote())
            except self._ray.exceptions.RayActorError:
                self._actors[number] = self._make_actor(len(self._parts[number]))

    def _join_obs(self, parts: Any) -> Any:
        spaces = (batch_space(self.single_observation_space, len(part)) for part in self._parts)
        each = [one for space, obs in zip(spaces, parts, strict=True) for one in iterate(space, obs)]
        return concatenate(
            self.single_observation_space, each, create_empty_array(self.single_observation_space, self.num_envs)
        )

    def _join_infos(self, parts: Any) -> dict[str, Any]:
        return _join_infos(list(parts), [len(part) for part in self._parts])


class VectorActor:
    """A part of the environments, in a process of the cluster."""

    def __init__(self, make_env: MakeEnv, size: int, options: dict[str, Any]):
        self._envs = SyncVectorEnv([make_env] * size, **options)

    def spaces(self) -> tuple[Any, Any, dict[str, Any]]:
        return self._envs.single_observation_space, self._envs.single_action_space, self._envs.metadata

    def reset(self, seeds: list[int | None], options: Any) -> tuple[Any, dict[str, Any]]:
        return self._envs.reset(seed=seeds, options=options)

    def step(self, actions: list[Any]) -> tuple[Any, ...]:
        space = self._envs.single_action_space
        return self._envs.step(concatenate(space, actions, create_empty_array(space, len(actions))))


def _join_infos(parts: list[dict[str, Any]], sizes: list[int]) -> dict[str, Any]:
    """The infos of all environments; where a part lacks a name, its mask is False, as in Gymnasium."""
    joined: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        known = next(part[name] for part in parts if name in part)
        if isinstance(known, dict):
            joined[name] = _join_infos([part.get(name, {}) for part in parts], sizes)
            continue
        rows = [part[name] if name in part else _missing(known, size) for part, size in zip(parts, sizes, strict=True)]
        joined[name] = np.concatenate(rows)
    return joined


def _missing(known: NDArray[Any], size: int) -> NDArray[Any]:
    shape = (size, *known.shape[1:])
    return np.full(shape, None, object) if known.dtype == object else np.zeros(shape, known.dtype)
