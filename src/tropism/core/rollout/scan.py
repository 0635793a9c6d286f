"""The compiled loop of a rollout: all environments, step by step."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Float, Int

from tropism.core.compiled.cost import estimate, member_shape
from tropism.core.devices import map_on_devices, replicate, split_lanes
from tropism.core.episode import Timestep
from tropism.core.rollout.plan import RolloutPlan, Transition

FIRST_MEMORIES = 2**32 - 1  # folded into the key: no step has this number
MAX_BYTES = 2**35  # of intermediate values, all environments together
ACCELERATOR_UNROLL = 8  # steps a loop iteration, where launching a kernel costs more than its work


class EpisodeTotals(eqx.Module):
    """Sums over all episodes that ended during the rollout."""

    episodes: Int[Array, ""]
    total_return: Float[Array, ""]
    total_length: Float[Array, ""]  # a float: the steps of a long rollout exceed 32 bits

    @property
    def mean_return(self) -> Float[Array, ""]:
        return self.total_return / jnp.maximum(self.episodes, 1)

    @property
    def mean_length(self) -> Float[Array, ""]:
        return self.total_length / jnp.maximum(self.episodes, 1)


class Rollout(NamedTuple):
    """`transitions` are stacked (time, environment, …), None unless collected.

    `totals` is the sum of `reduce`; without it, `episodes` has the episode statistics. `obs` is the batch of
    observations after the last step, None unless transitions are collected.
    """

    transitions: Transition | None
    totals: Any
    episodes: Any  # EpisodeTotals, or None with `reduce`
    obs: Any


class LaneTotals(eqx.Module):
    """Sums per environment, added up only at the end: a sum over the batch at every step is slower. Fused kernels have
    them for one environment, without its axis."""

    current: Float[Array, "*envs"]  # return of the running episode
    returns: Float[Array, "*envs"]  # sum over the finished episodes
    count: Int[Array, "*envs"]
    started: Int[Array, "*envs"]  # first step of the running episode: the total length of those before it

    def after(self, timestep: Timestep, time: Any) -> "LaneTotals":
        done = timestep.terminated | timestep.truncated
        current = self.current + timestep.reward
        return LaneTotals(
            jnp.where(done, 0, current),
            self.returns + jnp.where(done, current, 0),
            self.count + done,
            jnp.where(done, time + 1, self.started),
        )

    def totals(self) -> EpisodeTotals:
        return EpisodeTotals(self.count.sum(), self.returns.sum(), self.started.sum(dtype=jnp.float32))


class ScanCarry(NamedTuple):
    obs: Any
    state: Any
    memories: Any
    episodes: LaneTotals | None
    totals: Any


@eqx.filter_jit
def run_steps(
    plan: RolloutPlan, carry: Any, key: Any, params: Any, start: Any, length: int, first: bool, last: bool
) -> tuple[Any, Any]:
    """Some steps of a rollout. The first call has no carry, the last returns a Rollout.

    With both ends inside, the compiler drops unused values, such as the observations of a random policy.
    """

    unroll = 1 if jax.default_backend() == "cpu" else min(length, ACCELERATOR_UNROLL)

    def scan_step(carry: ScanCarry, xs: Any) -> tuple[ScanCarry, Any]:
        time, keys = xs
        after, summand, transition = _step(plan, carry, keys, params, time)
        after = after._replace(totals=jax.tree.map(lambda total, new: total + new, carry.totals, summand))
        if unroll > 1:  # otherwise XLA fuses several steps and recomputes them for each output
            after = lax.optimization_barrier(after)
        return after, transition if plan.collect else None

    times = start + jnp.arange(length, dtype=jnp.int32)
    carry = start_rollout(plan, key, params) if first else carry
    carry, transitions = lax.scan(scan_step, carry, (times, step_keys(key, times)), unroll=unroll)
    if not last:
        return carry, transitions
    episodes = None if carry.episodes is None else replicate(carry.episodes.totals())
    obs = carry.obs if plan.collect else None
    return Rollout(None, carry.totals, episodes, obs), transitions


def start_rollout(plan: RolloutPlan, key: Any, params: Any) -> ScanCarry:
    start = partial(_map_lanes, lambda lane: plan.first(key, lane, params))
    obs, state = map_on_devices(start, plan.lanes())
    memories = plan.memories(random.fold_in(key, FIRST_MEMORIES))
    none = split_lanes(jnp.zeros(plan.num_envs, jnp.int32))
    episodes = None if plan.reduce else LaneTotals(none.astype(jnp.float32), none.astype(jnp.float32), none, none)
    carry = ScanCarry(obs, state, memories, episodes, None)
    totals = jax.eval_shape(lambda carry: _first_step(plan, carry, key, params)[1], carry)
    return carry._replace(totals=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), totals))


def transition_shapes(plan: RolloutPlan, key: Any, params: Any) -> Transition:
    return jax.eval_shape(lambda: _first_step(plan, start_rollout(plan, key, params), key, params)[2])


def _first_step(plan: RolloutPlan, carry: ScanCarry, key: Any, params: Any) -> tuple[ScanCarry, Any, Transition]:
    return _step(plan, carry, step_keys(key, jnp.zeros(1, jnp.int32))[0], params, jnp.int32(0))


def step_keys(key: Any, times: Any) -> Any:
    """Three keys per step: for the policy, the environments and their next episodes.

    They are derived in one kernel, outside the loop.
    """
    return jax.vmap(lambda time: random.split(random.fold_in(key, time), 3))(times)


def _step(plan: RolloutPlan, carry: ScanCarry, keys: Any, params: Any, time: Any) -> tuple[ScanCarry, Any, Transition]:
    """All environments, one step: the carry, what `reduce` makes of it, and the transition."""
    action, memories = split_lanes(plan.act(keys[0], carry.memories, carry.obs))

    def step(lane: Any, state: Any, action: Any) -> Any:
        return plan.step((keys[1], keys[2]), lane, state, action, params)

    timestep: Timestep
    timestep, obs, state = map_on_devices(partial(_map_lanes, step), plan.lanes(), carry.state, action)
    memories = plan.renew(random.fold_in(keys[0], FIRST_MEMORIES), memories, timestep.terminated | timestep.truncated)
    _, reward, terminated, truncated, info = timestep
    transition = Transition(carry.obs, action, reward, terminated, truncated, timestep.obs, info)
    summand = plan.reduce(transition) if plan.reduce else None
    episodes = None if carry.episodes is None else carry.episodes.after(timestep, time)
    return ScanCarry(obs, state, memories, episodes, carry.totals), summand, transition


def _map_lanes(function: Callable[..., Any], *batches: Any) -> Any:
    """Apply a function to each environment: to all at once, or to as many as memory allows if its values are large."""
    members = jax.tree.map(member_shape, batches)
    size, needed = jax.tree.leaves(batches)[0].shape[0], estimate(function, *members).bytes
    chunk = min(size, max(1, int(MAX_BYTES // max(needed, 1))))
    if chunk == size:
        return jax.vmap(function)(*batches)
    whole = size // chunk * chunk
    chunks = jax.tree.map(lambda leaf: leaf[:whole].reshape(size // chunk, chunk, *leaf.shape[1:]), batches)
    results = lax.map(lambda batch: jax.vmap(function)(*batch), chunks)
    results = jax.tree.map(lambda leaf: leaf.reshape(whole, *leaf.shape[2:]), results)
    if whole == size:
        return results
    rest = jax.vmap(function)(*jax.tree.map(lambda leaf: leaf[whole:], batches))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), results, rest)
