"""PPO (Schulman et al. 2017), compiled end to end: rollout, advantages and optimization are one program.

Read `config.py`, then `Trainer.update`. Values are bootstrapped through truncation and cut only at termination.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, random
from jaxtyping import Array, Float, Int

from tropism.core.environment import Environment
from tropism.core.module import Module
from tropism.core.spaces import Space
from tropism.core.transforms.auto_reset import auto_reset
from tropism.train.actions import ActionDistribution
from tropism.train.agent import Agent, NetworkSpec, drop_weak_type, reset_memory_where
from tropism.train.config import Config
from tropism.train.faults import NO_FAULT, Fault, find_fault
from tropism.train.observations import InputStatistics, Preprocessor
from tropism.train.pixels import has_image
from tropism.train.user_network import make_network_spec

SHORT_TRAINING = 1_000_000  # steps of all agents; below, a faster compilation saves more than a faster program


class RolloutState(Module):
    """The state of the parallel environments."""

    obs: Any
    state: Any
    memory: Any
    discounted_return: Float[Array, " envs"]  # of the running episode; its variance scales rewards
    episode_return: Float[Array, " envs"]  # undiscounted, of the running episode
    last_return: Float[Array, " envs"]  # of the last finished episode; NaN before


class TrainState(Module):
    """The complete state of a training run."""

    agent: Agent
    optimizer: Any
    obs_statistics: InputStatistics
    return_statistics: InputStatistics
    rollout: RolloutState
    key: Any  # raw key data, which can be written to a file
    updates: Int[Array, ""]


class Sample(NamedTuple):
    """One step of all environments."""

    obs: Any
    memory: Any
    action: Any
    log_prob: Any
    value: Any
    next_obs: Any
    next_memory: Any
    reward: Any
    terminated: Any
    done: Any
    discounted_return: Any
    finished_return: Any  # of episodes that ended in this step; 0 elsewhere


class UpdateMetrics(NamedTuple):
    """Metrics of one update."""

    episodes: Any  # number of finished episodes
    returns: Any  # sum of their returns
    last_return: Any  # mean over environments of the last finished episode; NaN until each has one
    loss: Any
    entropy: Any
    fault: Any  # a Fault


class Trainer(Module):
    """PPO on one environment; `vmap` over keys trains several agents at once."""

    env: Environment
    params: Any
    config: Config = eqx.field(static=True)
    network_spec: NetworkSpec = eqx.field(static=True)

    def __init__(self, env: Environment, params: Any, config: Config, network: Any = None):
        """`network` is user-defined: a class, or `module:Class`."""
        self.env = auto_reset(env, "same_step")
        self.params = params
        self.config = config
        self.network_spec = make_network_spec(env, params, config, network)

    @property
    def actions(self) -> ActionDistribution:
        return ActionDistribution(self.env.action_space(self.params))

    def observation_space(self) -> Space:
        return self.env.observation_space(self.params)

    @property
    def preprocess(self) -> Preprocessor:
        return Preprocessor(self.network_spec.flatten, self.config.normalize)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        config = self.config
        steps = config.num_updates * config.epochs * config.minibatches
        rate = optax.linear_schedule(config.learning_rate, 0.0, steps) if config.anneal else config.learning_rate
        adam = optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optax.adam(rate, eps=1e-5))
        return optax.flatten(adam)  # one vector compiles faster than one array per layer

    def init(self, key: Any) -> TrainState:
        config = self.config
        agent_key, env_key, key = random.split(key, 3)
        obs, state = jax.vmap(self.env.reset, (0, None))(random.split(env_key, config.num_envs), self.params)
        obs = jax.tree.map(drop_weak_type, obs)
        first_obs = jax.tree.map(lambda leaf: leaf[0], obs)
        agent = self.network_spec.make_agent(first_obs, self.actions.space, agent_key)
        memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (config.num_envs, *leaf.shape)), agent.memory())
        zeros = jnp.zeros(config.num_envs)
        return TrainState(
            agent,
            self.optimizer.init(eqx.filter(agent, eqx.is_inexact_array)),
            InputStatistics.empty(self.preprocess.features(first_obs)),
            InputStatistics.empty(zeros[0]),
            RolloutState(obs, state, memory, zeros, zeros, jnp.full_like(zeros, jnp.nan)),
            random.key_data(key),
            jnp.int32(0),
        )

    def update(self, train: TrainState) -> tuple[TrainState, UpdateMetrics]:
        """Collect a rollout, compute advantages, optimize."""
        rollout_key, optimize_key, key = random.split(random.wrap_key_data(train.key), 3)
        rollout, samples = self._collect(train, rollout_key)
        return_statistics = train.return_statistics.with_batch(samples.discounted_return)
        train = eqx.tree_at(lambda train: train.return_statistics, train, return_statistics)
        advantage = self._advantages(train, samples)
        agent, optimizer, losses = self._optimize(train, samples, advantage, optimize_key)
        features = jax.vmap(jax.vmap(self.preprocess.features))(samples.obs)
        obs_statistics = train.obs_statistics.with_batch(features)  # used from the next update on
        train = TrainState(
            agent, optimizer, obs_statistics, train.return_statistics, rollout, random.key_data(key), train.updates + 1
        )
        episodes = (samples.done.sum(), samples.finished_return.sum(), rollout.last_return.mean())
        fault = find_fault(self.observation_space(), samples.obs, samples.next_obs, samples.reward)
        return train, UpdateMetrics(*episodes, losses[0].mean(), losses[1].mean(), fault)

    def _collect(self, train: TrainState, key: Any) -> tuple[RolloutState, Sample]:
        """Run all environments for `num_steps` steps."""

        def step(rollout: RolloutState, keys: Any) -> tuple[RolloutState, Sample]:
            inputs = jax.vmap(self.preprocess, (None, 0))(train.obs_statistics, rollout.obs)
            outputs, value, memory = jax.vmap(train.agent)(inputs, rollout.memory)
            log_std = train.agent.log_std
            action = self.actions.sample(keys[0], log_std, outputs)
            memory = jax.vmap(train.agent.remember)(memory, action)
            log_prob, _ = jax.vmap(self.actions.log_prob_and_entropy, (None, 0, 0))(log_std, outputs, action)
            obs, state, reward, done, info = jax.vmap(self.env.step, (0, 0, 0, None))(
                keys[1:], rollout.state, jax.vmap(self.actions.to_env)(action), self.params
            )
            return self._after_step(train, rollout, memory, obs, state, reward, done, info, action, log_prob, value)

        keys = random.split(key, (self.config.num_steps, 1 + self.config.num_envs))
        return lax.scan(step, train.rollout, keys)

    def _after_step(
        self, train: Any, before: RolloutState, memory: Any, obs: Any, state: Any, reward: Any, done: Any, info: Any,
        action: Any, log_prob: Any, value: Any,
    ) -> tuple[RolloutState, Sample]:  # fmt: skip
        """The rollout state after a step, and the step's sample; memories are reset at episode ends."""
        episode_return = before.episode_return + reward
        discounted_return = before.discounted_return * self.config.gamma + reward
        after = RolloutState(
            jax.tree.map(drop_weak_type, obs), state, reset_memory_where(done, memory, train.agent.memory()),
            jnp.where(done, 0, discounted_return), jnp.where(done, 0, episode_return),
            jnp.where(done, episode_return, before.last_return),
        )  # fmt: skip
        sample = Sample(
            before.obs, before.memory, action, log_prob, value, info["final_obs"], memory, reward,
            info["terminated"], done, discounted_return, jnp.where(done, episode_return, 0),
        )  # fmt: skip
        return after, sample

    def _inputs(self, train: TrainState, obs: Any) -> Any:
        return jax.vmap(jax.vmap(self.preprocess, (None, 0)), (None, 0))(train.obs_statistics, obs)

    def _advantages(self, train: TrainState, samples: Sample) -> Float[Array, "time envs"]:
        """Generalized advantage estimation."""
        config = self.config
        next_value = self._next_values(train, samples)
        reward = samples.reward
        if config.normalize:
            reward = reward / jnp.sqrt(train.return_statistics.var + 1e-8)
        td_error = reward + config.gamma * next_value * ~samples.terminated - samples.value

        def back(next_advantage: Any, now: Any) -> tuple[Any, Any]:
            td_error, done = now
            advantage = td_error + config.gamma * config.gae_lambda * ~done * next_advantage
            return advantage, advantage

        return lax.scan(back, jnp.zeros(config.num_envs), (td_error, samples.done), reverse=True)[1]

    def _next_values(self, train: TrainState, samples: Sample) -> Float[Array, "time envs"]:
        """Values of the observations after each step; images one step at a time, because their features fill memory."""

        def row(now: Any) -> Any:
            obs, memory = now
            inputs = jax.vmap(self.preprocess, (None, 0))(train.obs_statistics, obs)
            return jax.vmap(train.agent)(inputs, memory)[1]

        rows = (samples.next_obs, samples.next_memory)
        space = self.network_spec.observation_space
        return jax.vmap(row)(rows) if space is None or not has_image(space) else lax.map(row, rows)

    def _optimize(self, train: TrainState, samples: Sample, advantage: Any, key: Any) -> tuple[Agent, Any, Any]:
        """Several epochs over shuffled minibatches; a recurrent agent gets whole sequences."""
        config = self.config
        data = self._sequences(train, samples, advantage)
        size = data[-1].shape[1]

        def minibatch(carry: Any, members: Any) -> tuple[Any, Any]:
            agent, optimizer = carry
            chosen = jax.tree.map(lambda leaf: leaf[:, members], data)
            losses, gradient = eqx.filter_value_and_grad(self._loss, has_aux=True)(agent, chosen)
            updates, optimizer = self.optimizer.update(gradient, optimizer, eqx.filter(agent, eqx.is_inexact_array))
            return (eqx.apply_updates(agent, updates), optimizer), (losses[0], losses[1])

        shuffled = jnp.argsort(random.bits(key, (config.epochs, size)))
        minibatches = shuffled.reshape(config.epochs * config.minibatches, -1)
        (agent, optimizer), losses = lax.scan(minibatch, (train.agent, train.optimizer), minibatches)
        return agent, optimizer, losses

    def _sequences(self, train: TrainState, samples: Sample, advantage: Any) -> tuple[Any, ...]:
        """The inputs of the loss as (length, sequences, …); the length is 1 without memory."""
        starts = jnp.concatenate([jnp.zeros((1, self.config.num_envs), bool), samples.done[:-1]])
        data = (
            self._inputs(train, samples.obs), samples.memory, starts, samples.action, samples.log_prob, samples.value,
            advantage,
        )  # fmt: skip
        if self.network_spec.recurrent:
            return data
        return jax.tree.map(lambda leaf: leaf.reshape(1, self.config.batch, *leaf.shape[2:]), data)

    def _loss(self, agent: Agent, data: tuple[Any, ...]) -> tuple[Any, Any]:
        config = self.config
        obs, memory, starts, action, old_log_prob, old_value, advantage = data

        def step(memory: Any, now: Any) -> tuple[Any, Any]:
            x, starts, action = now
            outputs, value, memory = jax.vmap(agent)(x, reset_memory_where(starts, memory, agent.memory()))
            return jax.vmap(agent.remember)(memory, action), (outputs, value)

        if self.network_spec.recurrent:
            first = jax.tree.map(lambda leaf: leaf[0], memory)
            _, (outputs, value) = lax.scan(step, first, (obs, starts, action))
        else:
            outputs, value, _ = jax.vmap(jax.vmap(agent))(obs, memory)
        log_prob, entropy = jax.vmap(jax.vmap(self.actions.log_prob_and_entropy, (None, 0, 0)), (None, 0, 0))(
            agent.log_std, outputs, action
        )
        ratio = jnp.exp(log_prob - old_log_prob)
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        objective = jnp.minimum(ratio * scaled, jnp.clip(ratio, 1 - config.clip, 1 + config.clip) * scaled).mean()
        target = advantage + old_value
        clipped_value = old_value + jnp.clip(value - old_value, -config.clip, config.clip)
        value_loss = 0.5 * jnp.maximum((value - target) ** 2, (clipped_value - target) ** 2).mean()
        return -objective + config.value_weight * value_loss - config.entropy * entropy.mean(), entropy.mean()


def init_agents(trainer: Trainer, key: Any, count: int) -> TrainState:
    """The state of `count` agents before the first update; `key` is raw key data."""
    return _map_agents(trainer.init, random.split(random.wrap_key_data(key), count))


def init_agents_compiled(trainer: Trainer, key: Any, count: int) -> TrainState:
    """`init_agents`, compiled without optimization, because it runs once."""
    return _compile(init_agents, 0)(trainer, key, count)


def run_updates(trainer: Trainer, train: TrainState, updates: int) -> tuple[TrainState, UpdateMetrics]:
    """Run updates of all agents in parallel and return the metrics of each; compiled once for any number of updates."""
    train, metrics = dispatch_updates(trainer, train, updates)
    return train, stack_metrics(metrics)


def dispatch_updates(trainer: Trainer, train: TrainState, updates: int) -> tuple[TrainState, list[UpdateMetrics]]:
    """As `run_updates`, with the metrics still on the device."""
    is_short = trainer.config.total_steps * len(train.updates) <= SHORT_TRAINING
    update = _compile(_update, 1 if is_short else None)
    metrics: list[UpdateMetrics] = []
    for _ in range(updates):
        train, each = update(trainer, train)
        metrics.append(each)
    return train, metrics


def stack_metrics(metrics: list[UpdateMetrics]) -> UpdateMetrics:
    """Metrics on the host, (agents, updates, …); without a fault, only its key is fetched."""

    def stack(values: Any) -> Any:
        return jax.tree.map(lambda *each: np.stack(each, 1), *values)

    fault = Fault(stack([each.fault.key for each in metrics]), None, None)
    if (fault.key != NO_FAULT).any():
        fault = stack([each.fault for each in metrics])
    return stack([each._replace(fault=None) for each in metrics])._replace(fault=fault)


def _compile(function: Callable[..., Any], level: int | None) -> Callable[..., Any]:
    """Compile with an optimization level, on the CPU only. The level affects the last bits of results."""
    return _jit(function, level if jax.default_backend() == "cpu" else None)


@cache
def _jit(function: Callable[..., Any], level: int | None) -> Callable[..., Any]:
    options = None if level is None else {"xla_backend_optimization_level": level, "xla_cpu_use_fusion_emitters": False}
    return eqx.filter_jit(function, compiler_options=options)  # pyright: ignore[reportCallIssue, reportUnknownVariableType]  passed on to `jax.jit`


def _update(trainer: Trainer, train: TrainState) -> tuple[TrainState, UpdateMetrics]:
    return _map_agents(trainer.update, train)


def _map_agents(function: Callable[[Any], Any], agents: Any) -> Any:
    """`vmap`, except for a single agent: a batch of one compiles and runs slower."""
    if len(jax.tree.leaves(agents)[0]) > 1:
        return eqx.filter_vmap(function)(agents)
    result = function(jax.tree.map(lambda leaf: leaf[0], agents))
    return jax.tree.map(lambda leaf: leaf[None], result)
