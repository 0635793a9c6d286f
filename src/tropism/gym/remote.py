"""A served batch as a `gymnasium.vector.VectorEnv`."""

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from tropism.client.vector import VectorClient
from tropism.core.registry import make
from tropism.errors import StateError
from tropism.gym.infos import final_observations, with_mask
from tropism.gym.spaces import to_gymnasium_space


class RemoteVectorEnv(VectorEnv):  # pyright: ignore[reportMissingTypeArgument]; not generic before Gymnasium 1.0
    """`num_envs` environments of a server, stepped together; `id` is registered here too, for its spaces."""

    def __init__(self, url: str, num_envs: int, *, id: str | None = None, mode: str = "next_step", **settings: Any):
        self.closed = True  # until there is something to close
        env, params = make(id or url.rstrip("/").rpartition("/")[2])
        self.num_envs = num_envs
        self.single_action_space = to_gymnasium_space(env.action_space(params))
        self.single_observation_space = to_gymnasium_space(env.observation_space(params))
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode[mode.upper()]}
        self._client = VectorClient(url, num_envs, mode=mode, **settings)
        self._begun = False
        self.closed = False

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed if isinstance(seed, int) else None)
        mask = None if options is None else options.get("reset_mask")
        reply = self._client.reset(seed, mask)
        self._begun = True
        return reply["observation"], with_mask(reply["info"], np.ones(self.num_envs, bool))

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        if not self._begun:
            raise StateError("lifecycle", "created", "reset first", "cannot step: call reset() first")
        reply = self._client.step(np.asarray(actions))
        terminated, truncated = reply["terminated"], reply["truncated"]
        every = np.ones(self.num_envs, bool)
        infos = with_mask(reply.get("info", {}), every)
        done = terminated | truncated
        if "final_obs" in reply and done.any():
            infos |= {"final_obs": final_observations(reply["final_obs"], done), "_final_obs": done}
            infos |= {"final_info": with_mask(reply.get("final_info", {}), done), "_final_info": done}
        return reply["observation"], reply["reward"].astype(np.float64), terminated, truncated, infos

    def close_extras(self, **kwargs: Any) -> None:
        self._client.close()
