"""Faulty environments, user-defined networks, and helpers for tests of training."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tropism.core.spaces import Box, Dict, Image, Space
from tropism.envs.grid_world import GridWorld
from tropism.train.ppo import PPOConfig
from tropism.train.training import Training


def brief(target: str, updates: int = 6, network: Any = None, seeds: int = 1, **numbers: Any) -> Training:
    """A training run of a few small updates."""
    small: dict[str, Any] = {"num_envs": 4, "num_steps": 16, "epochs": 1, "minibatches": 2, "hidden": 64}
    every: dict[str, Any] = small | {"total_steps": updates * 64} | numbers
    config = PPOConfig(**every)
    return Training(target, {}, {}, config, seed=0, seeds=seeds, network=network)


class Endless(GridWorld):
    """GridWorld that never ends, so that `time` counts the steps of a training run."""

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, done, info = super().step(key, state, action, params)
        never = jnp.zeros_like(done)
        return obs, state, reward, never, info | {"terminated": never, "truncated": never}


class NanReward(Endless):
    """NaN in step 37 of each environment, which is in the third update of `brief`."""

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, done, info = super().step(key, state, action, params)
        return obs, state, jnp.where(state.time == 37, jnp.nan, reward), done, info


class InfiniteObservation(Endless):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, done, info = super().step(key, state, action, params)
        wild = jnp.where(state.time == 37, jnp.inf, obs[1])
        return {"place": obs.at[1].set(wild)}, state, reward, done, info

    def reset(self, key: Any, params: Any) -> Any:
        obs, state = super().reset(key, params)
        return {"place": obs}, state

    def observation_space(self, params: Any) -> Any:
        return Dict({"place": Box(-np.inf, np.inf, (2,))})


class NanReset(GridWorld):
    def reset(self, key: Any, params: Any) -> Any:
        obs, state = super().reset(key, params)
        return obs.at[0].set(jnp.nan), state


class Outside(Endless):
    """Outside 0..1 from step 20 of each environment on."""

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, done, info = super().step(key, state, action, params)
        return obs.at[1].set(jnp.where(state.time >= 20, 1.75, obs[1])), state, reward, done, info


class WrongShape(GridWorld):
    def observation_space(self, params: Any) -> Any:
        return Box(0.0, 1.0, (3,))


class PictureAndPlace(GridWorld):
    """Observes an image and a vector."""

    def reset(self, key: Any, params: Any) -> Any:
        obs, state = super().reset(key, params)
        return {"place": obs, "picture": jnp.zeros((8, 8, 3), jnp.uint8)}, state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, *rest = super().step(key, state, action, params)
        return {"place": obs, "picture": jnp.zeros((8, 8, 3), jnp.uint8)}, *rest

    def observation_space(self, params: Any) -> Any:
        return Dict({"place": Box(0.0, 1.0, (2,)), "picture": Image(8, 8)})


class Net(eqx.Module):
    """Without memory; one of its leaves is an activation function."""

    actor: eqx.nn.MLP
    critic: eqx.nn.MLP

    def __init__(self, observation_space: Space, action_space: Any, *, key: Any):
        policy_key, critic_key = jax.random.split(key)
        [size] = observation_space.shape or (1,)
        outputs = action_space.n if not isinstance(action_space, Box) else action_space.shape[0]
        self.actor = eqx.nn.MLP(size, outputs, 32, 2, key=policy_key)
        self.critic = eqx.nn.MLP(size, "scalar", 32, 2, key=critic_key)

    def __call__(self, obs: Any, memory: Any) -> Any:
        return self.actor(obs), self.critic(obs), memory


class Counting(Net):
    """Its memory is the number of steps and the last action."""

    def memory(self) -> Any:
        return {"steps": jnp.zeros((), jnp.int32), "action": jnp.asarray(-1)}

    def __call__(self, obs: Any, memory: Any) -> Any:
        x = obs + 0.1 * memory["steps"] + memory["action"]
        return self.actor(x), self.critic(x), {"steps": memory["steps"] + 1, "action": memory["action"]}

    def remember(self, memory: Any, action: Any) -> Any:
        return {**memory, "action": action}


class TwoInputs(eqx.Module):
    """Takes a structured observation: a dict of a vector and an image."""

    layer: eqx.nn.Linear

    def __init__(self, observation_space: Any, action_space: Any, *, key: Any):
        assert set(observation_space.spaces) == {"picture", "place"}
        self.layer = eqx.nn.Linear(3, action_space.n + 1, key=key)

    def __call__(self, obs: Any, memory: Any) -> Any:
        assert obs["picture"].dtype == jnp.uint8
        y = self.layer(jnp.append(obs["place"], obs["picture"].mean()))
        return y[:-1], y[-1], memory
