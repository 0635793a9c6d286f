"""Tabular Q-learning (Watkins 1989), for discrete actions and observations that are discrete or binned."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jaxtyping import Array, Float, Int

from tropism.core.environment import Environment
from tropism.core.module import Module
from tropism.core.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space
from tropism.core.transforms.auto_reset import auto_reset
from tropism.errors import ValidationError
from tropism.train.agent import drop_weak_type
from tropism.train.algorithm import Algorithm, Config, UpdateMetrics, option
from tropism.train.faults import find_fault

MAX_ENTRIES = 50_000_000  # of the table


@dataclass(frozen=True, kw_only=True)
class QLearningConfig(Config):
    """Hyperparameters of Q-learning."""

    algorithm: ClassVar[str] = "q-learning"

    learning_rate: float = option(0.1, "Step size of the table's entries.")
    gamma: float = option(0.99, "Discount factor.")
    epsilon: float = option(0.05, "Probability of a random action at the end of the exploration.")
    exploration: float = option(0.5, "Share of the training in which that probability falls linearly from 1.")
    bins: int = option(10, "Bins of each number of an observation.")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_counts("bins")
        self.require_fractions("learning_rate", "gamma", "epsilon", "exploration")


class Bins(Module):
    """The table's row for each observation. An unbounded number x is binned as x/(1 + |x|), in −1…1."""

    space: Space
    bins: int = eqx.field(static=True)

    @property
    def sizes(self) -> tuple[int, ...]:
        match self.space:
            case Discrete():
                return (self.space.n,)
            case MultiDiscrete():
                return tuple(int(size) for size in np.ravel(self.space.nvec))
            case MultiBinary():
                return (2,) * math.prod(self.space.shape)
            case Box():
                return (self.bins,) * math.prod(self.space.shape)
            case _:
                raise ValidationError("observation_space", self.space, "a Discrete, MultiDiscrete, MultiBinary or Box")

    def row(self, obs: Any) -> Int[Array, ""]:
        row = jnp.zeros((), jnp.int32)
        for number, size in zip(self._numbers(obs), self.sizes, strict=True):
            row = row * size + jnp.clip(number.astype(jnp.int32), 0, size - 1)
        return row

    def _numbers(self, obs: Any) -> Any:
        match self.space:
            case Discrete() | MultiDiscrete():
                return jnp.ravel(jnp.asarray(obs) - self.space.start)
            case Box():
                low, high = (
                    jnp.ravel(jnp.broadcast_to(x, self.space.shape)) for x in (self.space.low, self.space.high)
                )
                bounded = jnp.isfinite(low) & jnp.isfinite(high)
                value = jnp.ravel(jnp.asarray(obs, float))
                low, width = jnp.where(bounded, low, -1), jnp.where(bounded, high - low, 2)
                value = jnp.where(bounded, value, value / (1 + jnp.abs(value)))
                return jnp.floor((value - low) / jnp.where(width > 0, width, 1) * self.bins)
            case _:
                return jnp.ravel(jnp.asarray(obs))


class QState(Module):
    """The complete state of a training run."""

    table: Float[Array, "rows actions"]
    obs: Any
    state: Any
    episode_return: Float[Array, " envs"]  # of the running episode
    last_return: Float[Array, " envs"]  # of the last finished episode; NaN before
    steps: Int[Array, ""]  # of each environment
    key: Any  # raw key data, which can be written to a file


class QPolicy(Module):
    """The best action of the table; a random one with the probability `epsilon`."""

    table: Float[Array, "rows actions"]
    bins: Bins
    first: Any  # the number of the first action
    epsilon: Any

    def init(self, key: Any) -> tuple[()]:
        del key
        return ()

    def act(self, key: Any, memory: tuple[()], obs: Any) -> tuple[Any, tuple[()]]:
        explore_key, action_key = random.split(key)
        values = self.table[self.bins.row(obs)]
        # Ties, as in a new table, are broken at random.
        best = jnp.argmax(jnp.where(values == values.max(), random.uniform(action_key, values.shape), -1))
        chance = random.randint(action_key, (), 0, values.size)
        action = jnp.where(random.bernoulli(explore_key, self.epsilon), chance, best)
        return (action + self.first).astype(jnp.int32), memory


class QLearning(Algorithm):
    Config = QLearningConfig

    bins: Bins

    def __init__(self, env: Environment, params: Any, config: QLearningConfig, network: Any = None):
        if network is not None:
            raise ValidationError("network", network, "None: Q-learning has a table")
        self.env, self.params, self.config = auto_reset(env, "same_step"), params, config
        if not isinstance(env.action_space(params), Discrete):
            raise ValidationError("action_space", env.action_space(params), "a Discrete space")
        self.bins = Bins(env.observation_space(params), config.bins)
        if math.prod(self.bins.sizes) * self.actions.n > MAX_ENTRIES:
            expected = f"fewer bins: the table would have more than {MAX_ENTRIES:,} entries"
            raise ValidationError("bins", config.bins, expected)

    @property
    def actions(self) -> Any:
        return self.env.action_space(self.params)

    @property
    def summary(self) -> str:
        return f"a table of {math.prod(self.bins.sizes):,} × {self.actions.n} values"

    def init(self, key: Any) -> QState:
        env_key, key = random.split(key)
        obs, state = jax.vmap(self.env.reset, (0, None))(random.split(env_key, self.config.num_envs), self.params)
        obs, zeros = jax.tree.map(drop_weak_type, obs), jnp.zeros(self.config.num_envs)
        table = jnp.zeros((math.prod(self.bins.sizes), self.actions.n))
        last = jnp.full_like(zeros, jnp.nan)
        return QState(table, obs, state, zeros, last, jnp.zeros((), jnp.int32), random.key_data(key))

    def policy(self, state: QState, greedy: bool = False) -> QPolicy:
        return self._explorer(state.table, 0.0 if greedy else self.config.epsilon)

    def finite_parts(self, state: QState) -> dict[str, Any]:
        return {"table": state.table}

    def update(self, state: QState) -> tuple[QState, UpdateMetrics]:
        steps_key, key = random.split(random.wrap_key_data(state.key))
        keys = random.split(steps_key, (self.config.num_steps, 2, self.config.num_envs))
        state, (obs, next_obs, reward, done, finished, error) = lax.scan(self._step, state, keys)
        fault = find_fault(self.observation_space(), obs, next_obs, reward)
        metrics = (done.sum(), finished.sum(), state.last_return.mean(), (error**2).mean(), fault)
        return eqx.tree_at(lambda each: each.key, state, random.key_data(key)), UpdateMetrics(*metrics)

    def _explorer(self, table: Any, epsilon: Any) -> QPolicy:
        return QPolicy(table, self.bins, self.actions.start, epsilon)

    def _step(self, state: QState, keys: Any) -> tuple[QState, tuple[Any, ...]]:
        """One step of all environments, and of the table."""
        config = self.config
        share = state.steps * config.num_envs / (config.total_steps * max(config.exploration, 1e-9))
        policy = self._explorer(state.table, jnp.maximum(config.epsilon, 1 - (1 - config.epsilon) * share))
        action = jax.vmap(policy.act, (0, None, 0))(keys[0], (), state.obs)[0]
        step = jax.vmap(self.env.step, (0, 0, 0, None))
        obs, env_state, reward, done, info = step(keys[1], state.state, action, self.params)
        row, next_row = jax.vmap(self.bins.row)(state.obs), jax.vmap(self.bins.row)(info["final_obs"])
        column = action - self.actions.start
        target = reward + config.gamma * state.table[next_row].max(-1) * ~info["terminated"]
        error = target - state.table[row, column]
        # Environments that change the same entry share one step of its size.
        entry = row * self.actions.n + column
        sharing = (entry[:, None] == entry).sum(1)
        table = state.table.at[row, column].add(config.learning_rate * error / sharing)
        episode_return = state.episode_return + reward
        last = jnp.where(done, episode_return, state.last_return)
        running = jnp.where(done, 0, episode_return)
        obs = jax.tree.map(drop_weak_type, obs)
        after = QState(table, obs, env_state, running, last, state.steps + 1, state.key)
        finished = jnp.where(done, episode_return, 0)
        return after, (state.obs, info["final_obs"], reward, done, finished, error)
