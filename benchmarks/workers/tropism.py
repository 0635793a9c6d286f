"""Tropism's CartPole and plume search: compiled rollouts, and single or vector environments in Gymnasium."""

import importlib
from typing import Any

import jax

from benchmarks.loops import single_loop, vector_loop
from benchmarks.worker import Run, serve


def checksum(transition: Any) -> jax.Array:
    """Sum of observation, reward and flags per environment, so that the compiler cannot remove them."""
    return transition.next_obs.sum(-1) + transition.reward + transition.terminated + transition.truncated


def rollout(num_envs: int, id: str = "CartPole-v1") -> Run:
    tropism: Any = importlib.import_module("tropism")
    env, params = tropism.make(id)
    policy = tropism.random_policy(env, params)

    def run(num_steps: int, seed: int) -> float:
        result = tropism.rollout(env, policy, seed, num_envs, num_steps, params=params, collect=False, reduce=checksum)
        return float(result.totals.sum())

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
