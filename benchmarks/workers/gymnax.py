"""gymnax's CartPole in the loop from its documentation: vmap inside scan, one key per environment."""

import importlib
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.worker import Run, serve


def step(env: Any, params: Any, num_envs: int, carry: Any, _: None) -> tuple[Any, None]:
    key, state, total = carry
    key, key_act, key_step = jax.random.split(key, 3)
    actions = jax.vmap(env.action_space(params).sample)(jax.random.split(key_act, num_envs))
    obs, state, reward, terminated, truncated, _info = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
        jax.random.split(key_step, num_envs), state, actions, params
    )
    total += obs.sum(-1) + reward + terminated + truncated
    return (key, state, total), None


def rollout(num_envs: int) -> Run:
    gymnax: Any = importlib.import_module("gymnax")
    env, params = gymnax.make("CartPole-v1")

    @partial(jax.jit, static_argnums=0)
    def compiled(num_steps: int, key: jax.Array) -> jax.Array:
        key, key_reset = jax.random.split(key)
        keys = jax.random.split(key_reset, num_envs)
        _, state = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
        body = partial(step, env, params, num_envs)
        (_, _, total), _ = jax.lax.scan(body, (key, state, jnp.zeros(num_envs)), length=num_steps)
        return total.sum()

    def run(num_steps: int, seed: int) -> float:
        return float(compiled(num_steps, jax.random.key(seed)))

    return run


if __name__ == "__main__":
    serve({"rollout": rollout}, ("gymnax", "jax"), lambda: jax.devices()[0].device_kind)
