"""One environment's part of a rollout, called a lane, for engines that trace it alone instead of mapping it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tropism.core.native.builder import Unsupported
from tropism.core.rollout.plan import RolloutPlan, Transition
from tropism.core.rollout.policy import RandomPolicy
from tropism.core.rollout.scan import FIRST_MEMORIES, transition_shapes

KEYS = 3  # of a step: for the policy, the environments and their next episodes
SAMPLES = 4  # environments of the test of `reduce`


def _wrap_key(words: Any) -> Any:
    return random.wrap_key_data(words, impl="threefry2x32")


def draws_for_batch(plan: RolloutPlan) -> bool:
    """Whether actions are drawn from one key for the whole batch; the engine then numbers the bits by lanes."""
    if type(plan.policy) is RandomPolicy:
        return True
    if hasattr(plan.policy, "act_batch"):
        raise Unsupported("policy", "it acts for a whole batch")
    return False


def act_one(plan: RolloutPlan, _: Any, key: Any, lane: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
    if draws_for_batch(plan):
        return plan.policy.act(_wrap_key(key), memory, obs)
    return plan.act_one(_wrap_key(key), lane, memory, obs)


def step_one(
    plan: RolloutPlan, params: Any, key: Any, time: Any, lane: Any, obs: Any, state: Any, action: Any, episodes: Any
) -> tuple[Any, ...]:
    """Observation, state, statistics, whether the episode ended, what `reduce` adds, and the collected transition."""
    timestep, state = plan.advance(_wrap_key(key), lane, state, action, params)
    transition = Transition(obs, action, *timestep[1:4], timestep.obs, timestep.info)
    summand = plan.reduce(jax.tree.map(lambda leaf: leaf[None], transition)) if plan.reduce else None
    episodes = None if episodes is None else episodes.after(timestep, time)
    done = timestep.terminated | timestep.truncated
    return timestep.obs, state, episodes, done, summand, transition if plan.collect else None


def restart_one(
    plan: RolloutPlan, params: Any, policy_key: Any, next_key: Any, lane: Any, state: Any
) -> tuple[Any, ...]:
    """Observation, state and the policy's memory at the start of the next episode."""
    obs, state = plan.restart((_wrap_key(next_key), lane, state, params))
    return obs, state, plan.memory(random.fold_in(_wrap_key(policy_key), FIRST_MEMORIES), lane)


def check_lanes(plan: RolloutPlan, key: Any, params: Any) -> None:
    """Refuse a rollout whose environments cannot be traced one by one."""
    if jax.config.jax_enable_x64:  # pyright: ignore
        raise Unsupported("dtype", "with 64-bit types, rollouts run on XLA")
    if plan.reduce is not None:
        with jax.ensure_compile_time_eval():  # the rollout may be part of a compiled function
            _check_reduce(plan.reduce, transition_shapes(replace(plan, num_envs=SAMPLES), key, params))


def _check_reduce(reduce: Callable[[Any], Any], shapes: Any) -> None:
    """Refuse a `reduce` whose result is neither one value for each environment nor a sum over them."""
    rng = np.random.default_rng(0)
    batch = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0, 2, leaf.shape).astype(leaf.dtype)), shapes)
    singles = [reduce(jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], batch)) for i in range(SAMPLES)]
    for whole, *parts in zip(*map(jax.tree.leaves, (reduce(batch), *singles)), strict=True):
        is_sum = jnp.shape(whole) == jnp.shape(parts[0])
        expected = sum(parts[1:], parts[0]) if is_sum else jnp.concatenate(list(map(jnp.atleast_1d, parts)))
        if jnp.shape(whole) != jnp.shape(expected) or not np.allclose(whole, expected, 1e-4, 1e-4):
            raise Unsupported("reduce", "it combines environments")
