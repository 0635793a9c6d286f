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
from tropism.core.spaces import Space
from tropism.core.transforms.auto_reset import auto_reset
from tropism.train.actions import Actions
from tropism.train.agent import Agent, Blueprint, forget_where, strong
from tropism.train.config import Config
from tropism.train.faults import NONE, Fault, survey
from tropism.train.observations import Inputs, Moments
from tropism.train.pixels import has_picture
from tropism.train.user_network import blueprint

SHORT = 1_000_000  # steps of all agents: a training that is over sooner with a shorter compilation


class Playing(Module):
    """The environments as they stand."""

    obs: Any
    state: Any
    memory: Any
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
    fault: Any  # a Fault


class Trainer(Module):
    """PPO on one environment; `vmap` it over keys to train many agents at once."""

    env: Environment
    params: Any
    config: Config = eqx.field(static=True)
    blueprint: Blueprint = eqx.field(static=True)

    def __init__(self, env: Environment, params: Any, config: Config, network: Any = None):
        """`network` is the user's own: a class, or `module:Class`."""
        self.env = auto_reset(env, "same_step")
        self.params = params
        self.config = config
        self.blueprint = blueprint(env, params, config, network)

    @property
    def actions(self) -> Actions:
        return Actions(self.env.action_space(self.params))

    def observation_space(self) -> Space:
        return self.env.observation_space(self.params)

    @property
    def inputs(self) -> Inputs:
        return Inputs(self.blueprint.flatten, self.config.normalize)

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
        obs = jax.tree.map(strong, obs)
        one = jax.tree.map(lambda leaf: leaf[0], obs)
        agent = self.blueprint.agent(one, self.actions.space, agent_key)
        moments = Moments.none(self.inputs.features(one))
        memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (config.num_envs, *leaf.shape)), agent.memory())
        none = jnp.zeros(config.num_envs)
        playing = Playing(obs, state, memory, none, none, jnp.full_like(none, jnp.nan))
        optimizer = self.optimizer.init(eqx.filter(agent, eqx.is_inexact_array))
        return TrainState(agent, optimizer, moments, Moments.none(none[0]), playing, random.key_data(key), jnp.int32(0))

    def update(self, train: TrainState) -> tuple[TrainState, Progress]:
        """Act, judge, learn."""
        act_key, learn_key, key = random.split(random.wrap_key_data(train.key), 3)
        playing, seen = self._act(train, act_key)
        spread = train.return_moments.with_batch(seen.returned)
        train = eqx.tree_at(lambda train: train.return_moments, train, spread)
        advantage = self._judge(train, seen)
        agent, optimizer, losses = self._learn(train, seen, advantage, learn_key)
        features = jax.vmap(jax.vmap(self.inputs.features))(seen.obs)
        obs_moments = train.obs_moments.with_batch(features)  # from the next update on
        train = TrainState(
            agent, optimizer, obs_moments, train.return_moments, playing, random.key_data(key), train.updates + 1
        )
        ended = (seen.done.sum(), seen.finished_return.sum(), playing.last.mean())
        fault = survey(self.observation_space(), seen.obs, seen.next_obs, seen.reward)
        return train, Progress(*ended, losses[0].mean(), losses[1].mean(), fault)

    def _act(self, train: TrainState, key: Any) -> tuple[Playing, Seen]:
        """`num_steps` steps of all environments."""

        def step(playing: Playing, keys: Any) -> tuple[Playing, Seen]:
            inputs = jax.vmap(self.inputs, (None, 0))(train.obs_moments, playing.obs)
            outputs, value, memory = jax.vmap(train.agent)(inputs, playing.memory)
            action = self.actions.draw(keys[0], train.agent.log_std, outputs)
            memory = jax.vmap(train.agent.remember)(memory, action)
            log_prob, _ = jax.vmap(self.actions.log_prob, (None, 0, 0))(train.agent.log_std, outputs, action)
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
        kept = forget_where(done, memory, train.agent.memory())
        after = Playing(
            jax.tree.map(strong, obs), state, kept, jnp.where(done, 0, returned), jnp.where(done, 0, gained),
            jnp.where(done, gained, before.last),
        )  # fmt: skip
        seen = Seen(
            before.obs, before.memory, action, log_prob, value, info["final_obs"], memory, reward,
            info["terminated"], done, returned, jnp.where(done, gained, 0),
        )  # fmt: skip
        return after, seen

    def _inputs(self, train: TrainState, obs: Any) -> Any:
        return jax.vmap(jax.vmap(self.inputs, (None, 0)), (None, 0))(train.obs_moments, obs)

    def _judge(self, train: TrainState, seen: Seen) -> Float[Array, "time envs"]:
        """Generalised advantages. Only termination ends a value: after a truncation, the critic says what comes."""
        config = self.config
        next_value = self._next_values(train, seen)
        reward = seen.reward
        if config.normalize:
            reward = reward / jnp.sqrt(train.return_moments.var + 1e-8)
        surprise = reward + config.gamma * next_value * ~seen.terminated - seen.value

        def back(later: Any, now: Any) -> tuple[Any, Any]:
            surprise, done = now
            advantage = surprise + config.gamma * config.gae_lambda * ~done * later
            return advantage, advantage

        return lax.scan(back, jnp.zeros(config.num_envs), (surprise, seen.done), reverse=True)[1]

    def _next_values(self, train: TrainState, seen: Seen) -> Float[Array, "time envs"]:
        """Values of the observations after each step; one step at a time for pictures, whose features fill memory."""

        def row(now: Any) -> Any:
            obs, memory = now
            inputs = jax.vmap(self.inputs, (None, 0))(train.obs_moments, obs)
            return jax.vmap(train.agent)(inputs, memory)[1]

        rows = (seen.next_obs, seen.next_memory)
        space = self.blueprint.observation_space
        return jax.vmap(row)(rows) if space is None or not has_picture(space) else lax.map(row, rows)

    def _learn(self, train: TrainState, seen: Seen, advantage: Any, key: Any) -> tuple[Agent, Any, Any]:
        """Some passes over what was seen, in shuffled parts: of whole sequences where the agent has a memory."""
        config = self.config
        data = self._pieces(train, seen, advantage)
        size = data[-1].shape[1]

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
            self._inputs(train, seen.obs), seen.memory, starts, seen.action, seen.log_prob, seen.value, advantage,
        )  # fmt: skip
        if self.blueprint.recurrent:
            return data
        return jax.tree.map(lambda leaf: leaf.reshape(1, self.config.batch, *leaf.shape[2:]), data)

    def _loss(self, agent: Agent, data: tuple[Any, ...]) -> tuple[Any, Any]:
        config = self.config
        obs, memory, starts, action, old_log_prob, old_value, advantage = data

        def step(memory: Any, now: Any) -> tuple[Any, Any]:
            x, starts, action = now
            outputs, value, memory = jax.vmap(agent)(x, forget_where(starts, memory, agent.memory()))
            return jax.vmap(agent.remember)(memory, action), (outputs, value)

        if self.blueprint.recurrent:
            first = jax.tree.map(lambda leaf: leaf[0], memory)
            _, (outputs, value) = lax.scan(step, first, (obs, starts, action))
        else:
            outputs, value, _ = jax.vmap(jax.vmap(agent))(obs, memory)
        log_prob, entropy = jax.vmap(jax.vmap(self.actions.log_prob, (None, 0, 0)), (None, 0, 0))(
            agent.log_std, outputs, action
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
    train, reports = update_often(trainer, train, updates)
    return train, stack(reports)


def update_often(trainer: Trainer, train: TrainState, updates: int) -> tuple[TrainState, list[Progress]]:
    """As `advance`, with the reports still on the device."""
    is_short = trainer.config.total_steps * len(train.updates) <= SHORT
    update = _compiled(_update, 1 if is_short else None)
    reports: list[Progress] = []
    for _ in range(updates):
        train, progress = update(trainer, train)
        reports.append(progress)
    return train, reports


def stack(reports: list[Progress]) -> Progress:
    """Reports on the host, (agents, updates, …); where there is no fault, nothing but its key is fetched."""

    def stacked(values: Any) -> Any:
        return jax.tree.map(lambda *each: np.stack(each, 1), *values)

    fault = Fault(stacked([report.fault.key for report in reports]), None, None)
    if (fault.key != NONE).any():
        fault = stacked([report.fault for report in reports])
    return stacked([report._replace(fault=None) for report in reports])._replace(fault=fault)


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
