"""A served batch as a `gymnasium.vector.VectorEnv`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from tropism.client.vector import VectorClient
from tropism.core.registry import make
from tropism.errors import StateError, ValidationError
from tropism.gym.infos import Counters
from tropism.gym.spaces import to_gymnasium_space
from tropism.gym.vector import check_version, expand_seeds, resolve_autoreset_mode


class RemoteVectorEnv(VectorEnv):  # pyright: ignore[reportMissingTypeArgument]; not generic before Gymnasium 1.0
    """`num_envs` environments of a server, stepped together: a `GymVectorEnv` that runs remotely.

    `id` must also be registered locally, for its spaces; by default it is the last part of `url`.
    """

    def __init__(
        self, url: str, num_envs: int, *, id: str | None = None, autoreset_mode: Any = "next_step", **settings: Any
    ):
        self.closed = True  # until construction succeeds
        check_version()
        env, params = make(id or url.rstrip("/").rpartition("/")[2])
        self._mode = resolve_autoreset_mode(autoreset_mode)
        self.num_envs = num_envs
        self.single_action_space = to_gymnasium_space(env.action_space(params))
        self.single_observation_space = to_gymnasium_space(env.observation_space(params))
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode[self._mode.upper()]}
        self._client = VectorClient(url, num_envs, mode=self._mode, **settings)
        self._reset_info: frozenset[str] | None = None  # the names in the info of a reset; None before the first
        self._counters = Counters(num_envs)
        self._steps = np.zeros(num_envs, np.int64)
        self._finished = np.zeros(num_envs, bool)
        self.closed = False

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        mask, seeds = self._mask(options), expand_seeds(seed, self.num_envs)
        given = [each for each in seeds if each is not None]
        if given and len(given) < self.num_envs:
            raise ValidationError("seed", seed, "None, an int, or a seed for each environment")
        super().reset(seed=seeds[0])
        reply = self._client.reset(given or None, mask)
        self._reset_info = frozenset(reply["info"])
        self._counters.start_episodes(mask, seeds)
        self._steps[mask] = 0
        self._finished = self._finished & ~mask
        return reply["observation"], self._counters.infos_where(mask, self._steps, reply["info"])

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        if self._reset_info is None:
            raise StateError("lifecycle", "created", "reset first", "cannot step: call reset() first")
        reply = self._client.step(_arrays(actions))
        reward, terminated, truncated = reply["reward"].astype(np.float64), reply["terminated"], reply["truncated"]
        restarted, self._finished = self._finished, terminated | truncated
        self._counters.rewards += reward
        self._steps += 1
        final: dict[str, Any] = {}
        if self._mode == "same_step":
            restarted = self._finished
            if restarted.any():
                last = reply["final_obs"], reply.get("final_info", {})
                final = self._counters.final_infos(self._steps, *last, restarted)
        self._counters.restart_episodes(restarted)
        self._steps[restarted] = 0
        infos = self._counters.step_infos(self._steps, reply.get("info", {}), restarted, self._reset_info)
        return reply["observation"], reward, terminated, truncated, infos | final

    def _mask(self, options: Any) -> NDArray[Any]:
        if options is not None and (not isinstance(options, Mapping) or set(options) - {"reset_mask"}):
            raise ValidationError("options", options, "None or {'reset_mask': …}: a batch has no other options")
        mask = (options or {}).get("reset_mask")
        return np.ones(self.num_envs, bool) if mask is None else np.asarray(mask)

    def close_extras(self, **kwargs: Any) -> None:
        self._client.close()


def _arrays(actions: Any) -> Any:
    if isinstance(actions, Mapping):
        return {name: _arrays(part) for name, part in actions.items()}
    return [_arrays(part) for part in actions] if isinstance(actions, tuple) else np.asarray(actions)
