"""PPO (Schulman et al. 2017), compiled end to end: rollout, advantages and optimization are one program.

Read `PPOConfig`, then `PPO.update`. Values are bootstrapped through truncation and cut only at termination. With a
teacher, training starts as imitation of its actions in the states that the agent visits (Schmitt et al. 2018).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax, nn, random
from jaxtyping import Array, Float

from tropism.core.devices import map_on_devices, split_lanes
from tropism.core.environment import Environment
from tropism.core.module import Module
from tropism.core.rollout.policy import Policy
from tropism.core.spaces import Discrete
from tropism.core.transforms.auto_reset import auto_reset
from tropism.errors import ValidationError
from tropism.train.actions import ActionDistribution
from tropism.train.agent import Agent, AgentPolicy, NetworkSpec, drop_weak_type, reset_memory_where
from tropism.train.algorithm import Algorithm, Config, UpdateMetrics, option
from tropism.train.faults import find_fault
from tropism.train.observations import InputStatistics, Preprocessor
from tropism.train.pixels import has_image
from tropism.train.user_network import make_network_spec


@dataclass(frozen=True, kw_only=True)
class PPOConfig(Config):
    """Hyperparameters of PPO."""

    algorithm: ClassVar[str] = "ppo"

    epochs: int = option(4, "Passes over the collected samples per update.")
    minibatches: int = option(4, "Minibatches per pass.")
    learning_rate: float = option(1e-3, "Initial learning rate of Adam.")
    anneal: bool = option(True, "Decay the learning rate linearly to zero.")
    gamma: float = option(0.99, "Discount factor.")
    gae_lambda: float = option(0.95, "GAE lambda.")
    clip: float = option(0.2, "PPO clip range.")
    entropy: float = option(0.01, "Entropy coefficient.")
    value_weight: float = option(0.5, "Value loss coefficient.")
    max_grad_norm: float = option(0.5, "Maximum gradient norm.")
    hidden: int = option(64, "Layer size of the built-in network.")
    recurrent: bool = option(False, "Give the built-in network a memory (GRU).")
    normalize: bool = option(True, "Normalize float observations and scale rewards by running statistics.")
    teacher: str = option("", "A strategy of the environment, without memory, to imitate at first.")
    teacher_weight: float = option(4.0, "Initial coefficient of the imitation loss.")
    teacher_share: float = option(0.5, "Share of the training after which its coefficient is zero.")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_counts("epochs", "minibatches", "hidden")
        if not self.learning_rate > 0:
            raise ValidationError("learning_rate", self.learning_rate, "more than 0")
        if self.teacher_weight < 0:
            raise ValidationError("teacher_weight", self.teacher_weight, "0 or more")
        self.require_fractions("gamma", "gae_lambda", "teacher_share")
        sequences = self.num_envs if self.recurrent else self.batch
        if sequences % self.minibatches:
            product = "num_envs" if self.recurrent else "num_envs times num_steps"
            raise ValidationError("minibatches", self.minibatches, f"a divisor of {product}, {sequences}")


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


class PPO(Algorithm):
    Config = PPOConfig

    network_spec: NetworkSpec = eqx.field(static=True)
    teacher: Policy | None

    def __init__(self, env: Environment, params: Any, config: PPOConfig, network: Any = None):
        self.teacher = make_teacher(env, params, config.teacher) if config.teacher else None
        self.env = auto_reset(env, "same_step")
        self.params = params
        self.config = config
        self.network_spec = make_network_spec(env, params, config, network)

    @property
    def actions(self) -> ActionDistribution:
        return ActionDistribution(self.env.action_space(self.params))

    @property
    def summary(self) -> str:
        return self.network_spec.summary

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
        )

    def policy(self, state: TrainState, greedy: bool = False) -> AgentPolicy:
        return AgentPolicy(state.agent, state.obs_statistics, self.actions, self.preprocess, greedy)

    def finite_parts(self, state: TrainState) -> dict[str, Any]:
        return {name: part for name, part in vars(state).items() if name not in ("rollout", "key")}

    def update(self, state: TrainState) -> tuple[TrainState, UpdateMetrics]:
        """Collect a rollout, compute advantages, optimize."""
        rollout_key, optimize_key, key = random.split(random.wrap_key_data(state.key), 3)
        rollout, samples = self._collect(state, rollout_key)
        return_statistics = state.return_statistics.with_batch(samples.discounted_return)
        state = eqx.tree_at(lambda state: state.return_statistics, state, return_statistics)
        advantage = self._advantages(state, samples)
        agent, optimizer, loss = self._optimize(state, samples, advantage, optimize_key)
        features = jax.vmap(jax.vmap(self.preprocess.features))(samples.obs)
        obs_statistics = state.obs_statistics.with_batch(features)  # used from the next update on
        state = TrainState(agent, optimizer, obs_statistics, return_statistics, rollout, random.key_data(key))
        episodes = (samples.done.sum(), samples.finished_return.sum(), rollout.last_return.mean())
        fault = find_fault(self.observation_space(), samples.obs, samples.next_obs, samples.reward)
        return state, UpdateMetrics(*episodes, loss.mean(), fault)

    def _collect(self, train: TrainState, key: Any) -> tuple[RolloutState, Sample]:
        """Run all environments for `num_steps` steps."""

        def step(rollout: RolloutState, keys: Any) -> tuple[RolloutState, Sample]:
            inputs = jax.vmap(self.preprocess, (None, 0))(train.obs_statistics, rollout.obs)
            outputs, value, memory = jax.vmap(train.agent)(inputs, rollout.memory)
            log_std = train.agent.log_std
            action = self.actions.sample(keys[0], log_std, outputs)
            memory = jax.vmap(train.agent.remember)(memory, action)
            log_prob, _ = jax.vmap(self.actions.log_prob_and_entropy, (None, 0, 0))(log_std, outputs, action)
            obs, state, reward, done, info = map_on_devices(
                self._step_environments, keys[1:], rollout.state, jax.vmap(self.actions.to_env)(action)
            )
            return self._after_step(train, rollout, memory, obs, state, reward, done, info, action, log_prob, value)

        keys = random.split(key, (self.config.num_steps, 1 + self.config.num_envs))
        return lax.scan(step, split_lanes(train.rollout), keys)

    def _step_environments(self, keys: Any, states: Any, actions: Any) -> Any:
        return jax.vmap(self.env.step, (0, 0, 0, None))(keys, states, actions, self.params)

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
        size = data[2].shape[1]

        def minibatch(carry: Any, members: Any) -> tuple[Any, Any]:
            agent, optimizer = carry
            chosen = split_lanes(jax.tree.map(lambda leaf: leaf[:, members], data), 1)
            loss, gradient = eqx.filter_value_and_grad(self._loss)(agent, chosen)
            updates, optimizer = self.optimizer.update(gradient, optimizer, eqx.filter(agent, eqx.is_inexact_array))
            return (eqx.apply_updates(agent, updates), optimizer), loss

        shuffled = jnp.argsort(random.bits(key, (config.epochs, size)))
        minibatches = shuffled.reshape(config.epochs * config.minibatches, -1)
        (agent, optimizer), loss = lax.scan(minibatch, (train.agent, train.optimizer), minibatches)
        return agent, optimizer, loss

    def _sequences(self, train: TrainState, samples: Sample, advantage: Any) -> tuple[Any, ...]:
        """The inputs of the loss as (length, sequences, …); the length is 1 without memory."""
        starts = jnp.concatenate([jnp.zeros((1, self.config.num_envs), bool), samples.done[:-1]])
        data = (
            self._inputs(train, samples.obs), samples.memory, starts, samples.action, samples.log_prob, samples.value,
            advantage, self._lessons(train, samples),
        )  # fmt: skip
        if self.network_spec.recurrent:
            return data
        return jax.tree.map(lambda leaf: leaf.reshape(1, self.config.batch, *leaf.shape[2:]), data)

    def _lessons(self, train: TrainState, samples: Sample) -> tuple[Any, Any] | None:
        """The teacher's action in each state, and its weight in the loss."""
        if self.teacher is None:
            return None
        teacher, key = self.teacher, random.wrap_key_data(train.key)
        actions = jax.vmap(jax.vmap(lambda obs: teacher.act(key, None, obs)[0]))(samples.obs)
        progress = train.obs_statistics.count / self.config.total_steps
        remaining = jnp.maximum(1 - progress / max(self.config.teacher_share, 1e-9), 0)
        return actions - self.actions.space.start, jnp.full(actions.shape, self.config.teacher_weight * remaining)

    def _loss(self, agent: Agent, data: tuple[Any, ...]) -> Any:
        config = self.config
        obs, memory, starts, action, old_log_prob, old_value, advantage, lessons = data

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
        loss = -objective + config.value_weight * value_loss - config.entropy * entropy.mean()
        if lessons is None:
            return loss
        taught, weight = lessons
        return loss - (weight * jax.vmap(jax.vmap(lambda logits, a: nn.log_softmax(logits)[a]))(outputs, taught)).mean()


def make_teacher(env: Environment, params: Any, name: str) -> Policy:
    """The strategy of this name, which must have no memory: it advises on the states that the agent visits."""
    strategies = env.strategies(params)
    if name not in strategies or not isinstance(env.action_space(params), Discrete):
        expected = f"one of {', '.join(strategies)}" if strategies else "an environment with strategies"
        raise ValidationError("teacher", name, expected)
    teacher = strategies[name]()
    if jax.tree.leaves(teacher.init(random.key(0))):
        raise ValidationError("teacher", name, "a strategy without memory; in source tracking, pass observation=belief")
    return teacher
