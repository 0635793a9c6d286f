"""PPO in the style of PureJaxRL, which is not on the package index: gymnax, flax and optax in one compiled scan.

The hyperparameters are PureJaxRL's for CartPole.
"""

import importlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn, random

from benchmarks.last_episodes import LastEpisodes
from benchmarks.worker import print_training

gymnax: Any = importlib.import_module("gymnax")
wrappers: Any = importlib.import_module("gymnax.wrappers")
linen: Any = importlib.import_module("flax.linen")
optax: Any = importlib.import_module("optax")

NUM_STEPS, EPOCHS, MINIBATCHES, HIDDEN = 128, 4, 4, 64
RATE, GAMMA, LAMBDA, CLIP, ENTROPY, VALUE_WEIGHT, MAX_NORM = 2.5e-4, 0.99, 0.95, 0.2, 0.01, 0.5, 0.5


class Sample(NamedTuple):
    obs: Any
    action: Any
    value: Any
    log_prob: Any
    reward: Any
    done: Any
    info: Any


def dense(size: int, gain: float) -> Any:
    return linen.Dense(size, kernel_init=linen.initializers.orthogonal(gain))


class ActorCritic(linen.Module):
    num_actions: int

    @linen.compact
    def __call__(self, x: Any) -> tuple[Any, Any]:
        actor = critic = x
        for _ in range(2):
            actor = nn.tanh(dense(HIDDEN, 2**0.5)(actor))
        logits = dense(self.num_actions, 0.01)(actor)
        for _ in range(2):
            critic = nn.tanh(dense(HIDDEN, 2**0.5)(critic))
        return nn.log_softmax(logits), dense(1, 1.0)(critic)[..., 0]


def likelihood(log_probs: Any, action: Any) -> Any:
    return jnp.take_along_axis(log_probs, action[..., None], -1)[..., 0]


def advantages(samples: Sample, last_value: Any) -> Any:
    def back(carry: Any, now: Sample) -> tuple[Any, Any]:
        later, next_value = carry
        td_error = now.reward + GAMMA * next_value * (1 - now.done) - now.value
        advantage = td_error + GAMMA * LAMBDA * (1 - now.done) * later
        return (advantage, now.value), advantage

    return lax.scan(back, (jnp.zeros_like(last_value), last_value), samples, reverse=True, unroll=16)[1]


def loss(weights: Any, network: Any, samples: Sample, advantage: Any) -> Any:
    log_probs, value = network.apply(weights, samples.obs)
    target = advantage + samples.value
    clipped = samples.value + jnp.clip(value - samples.value, -CLIP, CLIP)
    error = 0.5 * jnp.maximum((value - target) ** 2, (clipped - target) ** 2).mean()
    ratio = jnp.exp(likelihood(log_probs, samples.action) - samples.log_prob)
    normalized = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_objective = jnp.minimum(ratio * normalized, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * normalized).mean()
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    return -policy_objective + VALUE_WEIGHT * error - ENTROPY * entropy


class Training:
    """One training; `run` is compiled."""

    def __init__(self, num_envs: int, total_steps: int):
        self.num_envs = num_envs
        self.num_updates = total_steps // (num_envs * NUM_STEPS)
        env, self.params = gymnax.make("CartPole-v1")
        self.env = wrappers.LogWrapper(wrappers.FlattenObservationWrapper(env))
        self.network = ActorCritic(env.action_space(self.params).n)
        steps = self.num_updates * EPOCHS * MINIBATCHES
        rate = optax.linear_schedule(RATE, 0.0, steps)
        self.optimizer = optax.chain(optax.clip_by_global_norm(MAX_NORM), optax.adam(rate, eps=1e-5))

    def run(self, key: Any) -> tuple[Any, Any, Any]:
        """The weights, the steps that ended an episode, and the returns."""
        key, network_key, reset_key = random.split(key, 3)
        weights = self.network.init(network_key, jnp.zeros(self.env.observation_space(self.params).shape))
        obs, state = jax.vmap(self.env.reset, (0, None))(random.split(reset_key, self.num_envs), self.params)
        carry = (weights, self.optimizer.init(weights), obs, state, key)
        (weights, *_), (ended, returns) = lax.scan(self.update, carry, None, self.num_updates)
        return weights, ended, returns

    def update(self, carry: Any, _: None) -> tuple[Any, Any]:
        weights, optimizer_state, obs, state, key = carry
        (obs, state, key), samples = lax.scan(
            lambda now, _: self.step(weights, now), (obs, state, key), None, NUM_STEPS
        )
        last_value = self.network.apply(weights, obs)[1]
        batch = (samples, advantages(samples, last_value))
        (weights, optimizer_state, key), _ = lax.scan(
            lambda now, _: self.epoch(batch, now), (weights, optimizer_state, key), None, EPOCHS
        )
        ended = (samples.info["returned_episode"], samples.info["returned_episode_returns"])
        return (weights, optimizer_state, obs, state, key), ended

    def step(self, weights: Any, carry: Any) -> tuple[Any, Sample]:
        obs, state, key = carry
        key, draw_key, step_key = random.split(key, 3)
        log_probs, value = self.network.apply(weights, obs)
        action = random.categorical(draw_key, log_probs)
        keys = random.split(step_key, self.num_envs)
        after, state, reward, terminated, truncated, info = jax.vmap(self.env.step, (0, 0, 0, None))(
            keys, state, action, self.params
        )
        done = terminated | truncated
        return (after, state, key), Sample(obs, action, value, likelihood(log_probs, action), reward, done, info)

    def epoch(self, batch: Any, carry: Any) -> tuple[Any, None]:
        weights, optimizer_state, key = carry
        key, order_key = random.split(key)
        size = self.num_envs * NUM_STEPS
        order = random.permutation(order_key, size)
        flat = jax.tree.map(lambda leaf: leaf.reshape(size, *leaf.shape[2:])[order], batch)
        minibatches = jax.tree.map(lambda leaf: leaf.reshape(MINIBATCHES, -1, *leaf.shape[1:]), flat)
        (weights, optimizer_state), _ = lax.scan(self.update_minibatch, (weights, optimizer_state), minibatches)
        return (weights, optimizer_state, key), None

    def update_minibatch(self, carry: Any, minibatch: Any) -> tuple[Any, None]:
        weights, optimizer_state = carry
        gradient = jax.grad(loss)(weights, self.network, *minibatch)
        change, optimizer_state = self.optimizer.update(gradient, optimizer_state)
        return (optax.apply_updates(weights, change), optimizer_state), None


def train(num_envs: int, seed: int, total_steps: int) -> tuple[int, LastEpisodes]:
    training = Training(num_envs, total_steps)
    _, ended, returns = jax.device_get(jax.jit(training.run)(random.key(seed)))
    episodes = LastEpisodes()
    for value in np.asarray(returns).ravel()[np.asarray(ended).ravel()]:
        episodes.add(1, float(value))
    return training.num_updates * num_envs * NUM_STEPS, episodes


if __name__ == "__main__":
    print_training(train, ("gymnax", "flax", "optax", "jax"))
