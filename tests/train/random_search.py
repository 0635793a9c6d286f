"""A second training algorithm, small: random search for a linear policy, from the public names alone."""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random

from tropism import auto_reset
from tropism.core.spaces import Discrete
from tropism.errors import ValidationError
from tropism.train import Algorithm, Config, UpdateMetrics
from tropism.train.algorithm import option
from tropism.train.faults import Fault


@dataclass(frozen=True, kw_only=True)
class RandomSearchConfig(Config):
    algorithm: ClassVar[str] = "tests.train.random_search:RandomSearch"

    num_envs: int = option(64, "Candidates per update.")
    num_steps: int = option(200, "Steps of each candidate.")
    noise: float = option(0.5, "Standard deviation of a candidate around the best policy.")


class LinearPolicy(eqx.Module):
    weights: Any

    def init(self, key: Any) -> Any:
        del key
        return ()

    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        del key
        return jnp.argmax(self.weights @ obs).astype(jnp.int32), memory


class RandomSearch(Algorithm):
    """Each environment runs one candidate; the candidate with the highest return is the next centre."""

    Config = RandomSearchConfig

    def __init__(self, env: Any, params: Any, config: RandomSearchConfig, network: Any = None):
        if network is not None:
            raise ValidationError("network", network, "None: the policy is linear")
        self.env, self.params, self.config = auto_reset(env, "same_step"), params, config

    @property
    def summary(self) -> str:
        return "a linear policy"

    def init(self, key: Any) -> Any:
        actions, obs = self.env.action_space(self.params), self.observation_space()
        assert isinstance(actions, Discrete)
        assert obs.shape is not None
        return {"weights": jnp.zeros((actions.n, *obs.shape)), "best": jnp.float32(0), "key": random.key_data(key)}

    def update(self, state: Any) -> tuple[Any, UpdateMetrics]:
        noise_key, env_key, key = random.split(random.wrap_key_data(state["key"]), 3)
        shape = (self.config.num_envs, *state["weights"].shape)
        candidates = state["weights"] + self.config.noise * random.normal(noise_key, shape)
        returns = jax.vmap(self._score)(candidates, random.split(env_key, self.config.num_envs))
        winner, best = candidates[jnp.argmax(returns)], returns.max()
        better = best > state["best"]
        after = {
            "weights": jnp.where(better, winner, state["weights"]),
            "best": jnp.maximum(best, state["best"]),
            "key": random.key_data(key),
        }
        metrics = UpdateMetrics(
            jnp.int32(self.config.num_envs), returns.sum(), after["best"], -after["best"], Fault.none()
        )
        return after, metrics

    def _score(self, weights: Any, key: Any) -> Any:
        """The mean episode length: CartPole and its like pay 1 a step."""

        def step(carry: Any, key: Any) -> tuple[Any, Any]:
            obs, state = carry
            action, _ = LinearPolicy(weights).act(None, (), obs)
            obs, state, reward, done, _ = self.env.step(key, state, action, self.params)
            return (obs, state), (reward, done)

        first, *keys = random.split(key, self.config.num_steps + 1)
        _, (rewards, dones) = jax.lax.scan(step, self.env.reset(first, self.params), jnp.stack(keys))
        return rewards.sum() / (dones.sum() + 1)

    def policy(self, state: Any, greedy: bool = False) -> LinearPolicy:
        del greedy
        return LinearPolicy(state["weights"])
