"""PPO (Schulman et al. 2017), compiled end to end: acting, advantages and learning are one program.

Read `config.py`, then `Trainer.update`: act, judge, learn. Only `terminated` ends a value; a truncated episode is
worth what the critic says of its last observation.
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
from tropism.core.transforms.auto_reset import auto_reset
from tropism.train.config import Config
from tropism.train.network import Actions, Agent, Memory, flat

SHORT = 1_000_000  # steps of all agents: a training that is over sooner with a shorter compilation


class Moments(Module):
    """Mean and variance of all that was seen."""

    mean: Any
    var: Any
    count: Any

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> "Moments":
        return cls(jnp.zeros(shape), jnp.ones(shape), jnp.float32(1e-4))

    def with_batch(self, x: Any) -> "Moments":
        """Chan's formula, over the first two axes: time and environment."""
        mean, var, count = x.mean((0, 1)), x.var((0, 1)), x.shape[0] * x.shape[1]
        total = self.count + count
        delta = mean - self.mean
        square = self.var * self.count + var * count + delta**2 * self.count * count / total
        return Moments(self.mean + delta * count / total, square / total, total)

    def scaled(self, x: Any) -> Any:
        return jnp.clip((x - self.mean) / jnp.sqrt(self.var + 1e-8), -10, 10)


class Playing(Module):
    """The environments as they stand."""

    obs: Any
    state: Any
    memory: Memory
    returned: Float[Array, " envs"]  # discounted, of the running episode: rewards are scaled by its spread
    gained: Float[Array, " envs"]  # the plain return of the running episode
    last: Float[Array, " envs"]  # that of the last one that ended; NaN before


class TrainState(Module):
    """Everything that training goes on from."""

    agent: Agent
    optimizer: Any
    obs_moments: Moments
    return_moments: Moments
    playing: Playing
    key: Any  # its words, so that it can be written to a file
    updates: Int[Array, ""]


class Seen(NamedTuple):
    """One step of all environments, as the learner needs it."""

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
    returned: Any
    finished_return: Any  # of episodes that ended here; 0 elsewhere


class Progress(NamedTuple):
    """What one update has to report."""

    episodes: Any  # that ended
    returns: Any  # theirs, summed
    last: Any  # the mean over environments of the last return of each; NaN until all have one
    loss: Any
    entropy: Any


class Trainer(Module):
    """PPO on one environment; `vmap` it over keys to train many agents at once."""

    env: Environment
    params: Any
    config: Config = eqx.field(static=True)

    def __init__(self, env: Environment, params: Any, config: Config):
        self.env = auto_reset(env, "same_step")
        self.params = params
        self.config = config

    @property
    def actions(self) -> Actions:
        return Actions(self.env.action_space(self.params))

    @property
    def optimizer(self) -> optax.GradientTransformation:
        config = self.config
        steps = config.num_updates * config.epochs * config.minibatches
        rate = optax.linear_schedule(config.learning_rate, 0.0, steps) if config.anneal else config.learning_rate
        adam = optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optax.adam(rate, eps=1e-5))
        return optax.flatten(adam)  # as one vector, which compiles sooner than layer by layer

    def init(self, key: Any) -> TrainState:
        config = self.config
        agent_key, env_key, key = random.split(key, 3)
        obs, state = jax.vmap(self.env.reset, (0, None))(random.split(env_key, config.num_envs), self.params)
        size = jax.vmap(flat)(obs).shape[-1]
        agent = Agent(size, self.env.action_space(self.params), config.hidden, config.recurrent, agent_key)
        memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (config.num_envs, *leaf.shape)), agent.memory())
        none = jnp.zeros(config.num_envs)
        playing = Playing(jax.vmap(flat)(obs), state, memory, none, none, jnp.full_like(none, jnp.nan))
        optimizer = self.optimizer.init(eqx.filter(agent, eqx.is_inexact_array))
        return TrainState(
            agent, optimizer, Moments.none((size,)), Moments.none(()), playing, random.key_data(key), jnp.int32(0)
        )

    def update(self, train: TrainState) -> tuple[TrainState, Progress]:
        """Act, judge, learn."""
        act_key, learn_key, key = random.split(random.wrap_key_data(train.key), 3)
        playing, seen = self._act(train, act_key)
        spread = train.return_moments.with_batch(seen.returned)
        train = eqx.tree_at(lambda train: train.return_moments, train, spread)
        advantage = self._judge(train, seen)
        agent, optimizer, losses = self._learn(train, seen, advantage, learn_key)
        obs_moments = train.obs_moments.with_batch(seen.obs)  # from the next update on
        train = TrainState(
            agent, optimizer, obs_moments, train.return_moments, playing, random.key_data(key), train.updates + 1
        )
        ended = (seen.done.sum(), seen.finished_return.sum(), playing.last.mean())
        return train, Progress(*ended, losses[0].mean(), losses[1].mean())

    def _act(self, train: TrainState, key: Any) -> tuple[Playing, Seen]:
        """`num_steps` steps of all environments."""

        def step(playing: Playing, keys: Any) -> tuple[Playing, Seen]:
            scaled = self._scaled(train, playing.obs)
            memory, outputs, value = jax.vmap(train.agent)(playing.memory, scaled)
            action = self.actions.draw(keys[0], train.agent, outputs)
            memory = jax.vmap(self.actions.remember)(memory, action)
            log_prob, _ = jax.vmap(self.actions.log_prob, (None, 0, 0))(train.agent, outputs, action)
            played = jax.vmap(self.actions.played)(action)
            obs, state, reward, done, info = jax.vmap(self.env.step, (0, 0, 0, None))(
                keys[1:], playing.state, played, self.params
            )
            return self._follow(train, playing, memory, obs, state, reward, done, info, action, log_prob, value)

        keys = random.split(key, (self.config.num_steps, 1 + self.config.num_envs))
        return lax.scan(step, train.playing, keys)

    def _follow(
        self, train: Any, before: Playing, memory: Any, obs: Any, state: Any, reward: Any, done: Any, info: Any,
        action: Any, log_prob: Any, value: Any,
    ) -> tuple[Playing, Seen]:  # fmt: skip
        """Where the environments stand after a step, and what was seen in it; memories end with their episodes."""
        gained, returned = before.gained + reward, before.returned * self.config.gamma + reward
        kept = memory.where(done, train.agent.memory())
        after = Playing(
            jax.vmap(flat)(obs), state, kept, jnp.where(done, 0, returned), jnp.where(done, 0, gained),
            jnp.where(done, gained, before.last),
        )  # fmt: skip
        seen = Seen(
            before.obs, before.memory, action, log_prob, value, jax.vmap(flat)(info["final_obs"]), memory, reward,
            info["terminated"], done, returned, jnp.where(done, gained, 0),
        )  # fmt: skip
        return after, seen

    def _scaled(self, train: TrainState, obs: Any) -> Any:
        return train.obs_moments.scaled(obs) if self.config.normalize else obs

    def _judge(self, train: TrainState, seen: Seen) -> Float[Array, "time envs"]:
        """Generalised advantages. Only termination ends a value: after a truncation, the critic says what comes."""
        config = self.config
        judge = jax.vmap(jax.vmap(train.agent))
        next_value = judge(seen.next_memory, self._scaled(train, seen.next_obs))[2]
        reward = seen.reward
        if config.normalize:
            reward = reward / jnp.sqrt(train.return_moments.var + 1e-8)
        surprise = reward + config.gamma * next_value * ~seen.terminated - seen.value

        def back(later: Any, now: Any) -> tuple[Any, Any]:
            surprise, done = now
            advantage = surprise + config.gamma * config.gae_lambda * ~done * later
            return advantage, advantage

        return lax.scan(back, jnp.zeros(config.num_envs), (surprise, seen.done), reverse=True)[1]

    def _learn(self, train: TrainState, seen: Seen, advantage: Any, key: Any) -> tuple[Agent, Any, Any]:
        """Some passes over what was seen, in shuffled parts: of whole sequences where the agent has a memory."""
        config = self.config
        data = self._pieces(train, seen, advantage)
        size = data[0].shape[1]

        def part(carry: Any, members: Any) -> tuple[Any, Any]:
            agent, optimizer = carry
            chosen = jax.tree.map(lambda leaf: leaf[:, members], data)
            losses, gradient = eqx.filter_value_and_grad(self._loss, has_aux=True)(agent, chosen)
            updates, optimizer = self.optimizer.update(gradient, optimizer, eqx.filter(agent, eqx.is_inexact_array))
            return (eqx.apply_updates(agent, updates), optimizer), (losses[0], losses[1])

        shuffled = jnp.argsort(random.bits(key, (config.epochs, size)))
        parts = shuffled.reshape(config.epochs * config.minibatches, -1)
        (agent, optimizer), losses = lax.scan(part, (train.agent, train.optimizer), parts)
        return agent, optimizer, losses

    def _pieces(self, train: TrainState, seen: Seen, advantage: Any) -> tuple[Any, ...]:
        """What a loss needs, as sequences of pieces: (length, pieces, …), of length 1 without memory."""
        starts = jnp.concatenate([jnp.zeros((1, self.config.num_envs), bool), seen.done[:-1]])
        data = (
            self._scaled(train, seen.obs), seen.memory, starts, seen.action, seen.log_prob, seen.value, advantage,
        )  # fmt: skip
        if self.config.recurrent:
            return data
        return jax.tree.map(lambda leaf: leaf.reshape(1, self.config.batch, *leaf.shape[2:]), data)

    def _loss(self, agent: Agent, data: tuple[Any, ...]) -> tuple[Any, Any]:
        config = self.config
        obs, memory, starts, action, old_log_prob, old_value, advantage = data

        def step(memory: Memory, now: Any) -> tuple[Memory, Any]:
            x, starts, action = now
            memory, outputs, value = jax.vmap(agent)(memory.where(starts, agent.memory()), x)
            return jax.vmap(self.actions.remember)(memory, action), (outputs, value)

        if config.recurrent:
            first = jax.tree.map(lambda leaf: leaf[0], memory)
            _, (outputs, value) = lax.scan(step, first, (obs, starts, action))
        else:
            _, outputs, value = jax.vmap(jax.vmap(agent))(memory, obs)
        log_prob, entropy = jax.vmap(jax.vmap(self.actions.log_prob, (None, 0, 0)), (None, 0, 0))(
            agent, outputs, action
        )
        ratio = jnp.exp(log_prob - old_log_prob)
        wanted = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = jnp.minimum(ratio * wanted, jnp.clip(ratio, 1 - config.clip, 1 + config.clip) * wanted).mean()
        target = advantage + old_value
        moved = old_value + jnp.clip(value - old_value, -config.clip, config.clip)
        error = 0.5 * jnp.maximum((value - target) ** 2, (moved - target) ** 2).mean()
        return -gain + config.value_weight * error - config.entropy * entropy.mean(), entropy.mean()


def start(trainer: Trainer, key: Any, count: int) -> TrainState:
    """So many agents, before their first update; `key` as words."""
    return _compiled(begin, 0)(trainer, key, count)  # what runs once is not worth a second of a compiler's thoughts


def advance(trainer: Trainer, train: TrainState, updates: int) -> tuple[TrainState, Progress]:
    """Some updates of every agent, side by side, with a report of each; compiled once for any number of them."""
    is_short = trainer.config.total_steps * len(train.updates) <= SHORT
    update = _compiled(_update, 1 if is_short else None)
    reports: list[Progress] = []
    for _ in range(updates):
        train, progress = update(trainer, train)
        reports.append(progress)
    return train, jax.tree.map(lambda *values: np.stack(values, 1), *reports)


def _compiled(function: Callable[..., Any], level: int | None) -> Callable[..., Any]:
    """Optimised this much, where that saves time: on the CPU. How much decides about the last bits of a result."""
    return _jitted(function, level if jax.default_backend() == "cpu" else None)


@cache
def _jitted(function: Callable[..., Any], level: int | None) -> Callable[..., Any]:
    options = None if level is None else {"xla_backend_optimization_level": level, "xla_cpu_use_fusion_emitters": False}
    return eqx.filter_jit(function, compiler_options=options)  # pyright: ignore[reportCallIssue, reportUnknownVariableType]  handed on to `jax.jit`


def begin(trainer: Trainer, key: Any, count: int) -> TrainState:
    """`start`, not compiled."""
    return _each(trainer.init, random.split(random.wrap_key_data(key), count))


def _update(trainer: Trainer, train: TrainState) -> tuple[TrainState, Progress]:
    return _each(trainer.update, train)


def _each(function: Callable[[Any], Any], many: Any) -> Any:
    """`vmap`, but of one agent alone without: a batch of one is slower, to compile and to run."""
    if len(jax.tree.leaves(many)[0]) > 1:
        return eqx.filter_vmap(function)(many)
    one = function(jax.tree.map(lambda leaf: leaf[0], many))
    return jax.tree.map(lambda leaf: leaf[None], one)
