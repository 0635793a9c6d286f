"""Tropism's CartPole and plume search: compiled rollouts, and single or vector environments in Gymnasium."""

import importlib
from functools import partial
from typing import Any

import jax

from benchmarks.loops import single_loop, vector_loop
from benchmarks.worker import Run, serve


def checksum(transition: Any) -> jax.Array:
    """Sum of observation, reward and flags per environment, so that the compiler cannot remove them."""
    return transition.next_obs.sum(-1) + transition.reward + transition.terminated + transition.truncated


def rollout(num_envs: int, id: str = "CartPole-v1") -> Run:
    """Params are constants of the compiled function, as in the other libraries."""
    tropism: Any = importlib.import_module("tropism")
    env, params = tropism.make(id)
    policy = tropism.random_policy(env, params)

    @partial(jax.jit, static_argnums=0)
    def compiled(num_steps: int, key: jax.Array) -> jax.Array:
        result = tropism.rollout(env, policy, key, num_envs, num_steps, params=params, collect=False, reduce=checksum)
        return result.totals.sum()

    def run(num_steps: int, seed: int) -> float:
        return float(compiled(num_steps, jax.random.key(seed)))

    return run


def single(num_envs: int) -> Run:
    assert num_envs == 1
    gymnasium: Any = importlib.import_module("gymnasium")
    return single_loop(gymnasium.make("tropism.gym:tropism/CartPole-v1"))


def single_xla(num_envs: int) -> Run:
    assert num_envs == 1
    gymnasium: Any = importlib.import_module("gymnasium")
    return single_loop(gymnasium.make("tropism.gym:tropism/CartPole-v1", engine="xla"))


def plume(num_envs: int) -> Run:
    """One environment in Gymnasium, more than one in a compiled rollout."""
    if num_envs > 1:
        return rollout(num_envs, "PlumeNav-v0")
    gymnasium: Any = importlib.import_module("gymnasium")
    return single_loop(gymnasium.make("tropism.gym:tropism/PlumeNav-v0"), action_bits=2)


def vector(num_envs: int) -> Run:
    gymnasium: Any = importlib.import_module("gymnasium")
    env = gymnasium.make_vec("tropism.gym:tropism/CartPole-v1", num_envs=num_envs)
    env.reset(seed=0)
    return vector_loop(env.step, num_envs)


if __name__ == "__main__":
    cases = {"rollout": rollout, "single": single, "single_xla": single_xla, "vector": vector, "plume": plume}
    serve(cases, ("tropism", "jax"), lambda: jax.devices()[0].device_kind)
