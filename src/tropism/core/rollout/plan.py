"""The static part of a rollout, and one environment's part of a step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random

from tropism.core.compiled.reset_where import Restarts, reset_where, select
from tropism.core.devices import split_lanes
from tropism.core.environment import Environment, Info
from tropism.core.episode import Timestep, start_episode, start_next_episode, step_episode, step_timestep
from tropism.core.native.scalarize import is_key
from tropism.core.rollout.policy import Policy, check_result


class Transition(NamedTuple):
    """One step of all environments; `next_obs` is the observation before any restart."""

    obs: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    next_obs: Any
    info: Info


def plan_identity(plan: "RolloutPlan", key: Any, params: Any) -> Any:
    """A hashable value that is equal for rollouts that compile to the same program."""
    leaves, structure = jax.tree.flatten((plan, params))
    shapes = tuple((leaf.shape, str(leaf.dtype)) if eqx.is_array(leaf) else leaf for leaf in leaves)
    config: Any = jax.config
    return structure, shapes, key.shape, str(key.dtype), config.jax_enable_x64, config.jax_threefry_partitionable


class RolloutPlan(eqx.Module):
    """The static arguments of a compiled rollout."""

    env: Environment
    policy: Policy
    num_envs: int
    collect: bool
    reduce: Callable[[Transition], Any] | None
    reproducible: bool
    restarts: Restarts

    def act(self, key: Any, memories: Any, obs: Any) -> tuple[Any, Any]:
        """The actions of all environments, and the memories after them."""
        act_batch = getattr(self.policy, "act_batch", None)
        if act_batch is not None:
            return act_batch(key, memories, obs, self.num_envs)

        return jax.vmap(self.act_one, (None, 0, 0, 0))(key, self.lanes(), memories, obs)

    def act_one(self, key: Any, lane: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        return check_result(self.policy, self.policy.act(_lane_key(key, lane), memory, obs))

    def memory(self, key: Any, lane: Any) -> Any:
        """The memory of one environment's policy at the start of an episode."""
        return self.policy.init(_lane_key(key, lane))

    def memories(self, key: Any) -> Any:
        return jax.vmap(self.memory, (None, 0))(key, self.lanes())

    def renew(self, key: Any, memories: Any, done: Any) -> Any:
        """New memories where an episode ended."""
        if not jax.tree.leaves(memories):
            return memories
        return select(done, self.memories(key), memories)

    def lanes(self) -> Any:
        return split_lanes(jnp.arange(self.num_envs, dtype=jnp.uint32))

    def first(self, key: Any, lane: Any, params: Any) -> tuple[Any, Any]:
        """`(obs, state)` of environment `lane` before its first step; the state is an Episode if reproducible."""
        if self.reproducible:
            episode, timestep = start_episode(self.env, _add_to_key(random.key_data(key), lane), params)
            return timestep.obs, episode
        return self.env.reset(_lane_key(key, lane), params)

    def step(self, keys: Any, lane: Any, state: Any, action: Any, params: Any) -> tuple[Timestep, Any, Any]:
        """One step of one environment: its timestep, then `(obs, state)` to continue with."""
        key, next_key = keys
        timestep, state = self.advance(key, lane, state, action, params)
        done = timestep.terminated | timestep.truncated
        source = next_key, lane, state, params
        return timestep, *reset_where(self.restart, done, source, (timestep.obs, state), self.restarts)

    def advance(self, key: Any, lane: Any, state: Any, action: Any, params: Any) -> tuple[Timestep, Any]:
        """A step without a restart: the timestep and the state."""
        if self.reproducible:
            state, timestep = step_episode(self.env, state, action, params)
            return timestep, state
        result = self.env.step(_lane_key(key, lane), state, action, params)
        return step_timestep(self.env, *result, params), result[1]

    def restart(self, source: Any) -> tuple[Any, Any]:
        """`(obs, state)` of the next episode of an environment."""
        key, lane, state, params = source
        if self.reproducible:
            return start_next_episode(self.env, state, params)
        return self.env.restart(_lane_key(key, lane), state, params)


def _lane_key(key: Any, lane: Any) -> Any:
    """The key of one environment. Adding the lane makes it unique, and every draw from it is hashed anyway:
    hashing it here too would cost as much as a step of a small environment."""
    data = random.key_data(key)
    if data.shape != (2,):
        return random.fold_in(key, lane)
    words = _add_to_key(data, lane)
    return random.wrap_key_data(words, impl=random.key_impl(key)) if is_key(key) else words


def _add_to_key(words: Any, lane: Any) -> Any:
    """The key of seed + lane: 64-bit addition in two 32-bit words."""
    low = words[1] + lane
    return jnp.stack([words[0] + (low < words[1]), low])
