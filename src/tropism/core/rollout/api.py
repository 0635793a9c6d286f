"""Compiled rollouts: many environments, many steps, one call."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Float, Int

from tropism.core.compiled.reset_where import Restarts, check_restarts, reset_where
from tropism.core.environment import Environment, Info, override
from tropism.core.episode import (
    Timestep,
    start_episode,
    start_next_episode,
    step_episode,
    step_timestep,
)
from tropism.core.rollout.policy import Policy, as_policy, check_result, jax_key
from tropism.core.spaces.space import check_count
from tropism.errors import ValidationError

FIRST_MEMORIES = 2**32 - 1  # folded into the key: no step has this number
REPORTS = 20  # how often a rollout with a progress bar reports
ACCELERATOR_UNROLL = 8  # steps a loop iteration, where launching a kernel costs more than its work


class Transition(NamedTuple):
    """One step of all environments; `next_obs` is the observation before any restart."""

    obs: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    next_obs: Any
    info: Info


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


def rollout(
    env: Environment,
    policy: Policy | Callable[..., Any],
    key: Any,
    num_envs: int,
    num_steps: int,
    *,
    params: Any = None,
    collect: bool = True,
    reduce: Callable[[Transition], Any] | None = None,
    reproducible: bool = False,
    restarts: Restarts = "auto",
    progress: bool | Callable[[int, int], None] = False,
) -> Rollout:
    """Step `num_envs` environments `num_steps` times, restarting each as its episode ends.

    `policy` is a pure `Policy`, or a function `obs -> action` or `(key, obs) -> action`, of one environment;
    its memory starts anew with each episode. `collect=False` keeps no transitions; `reduce` maps each
    Transition to a pytree that is summed over time, in place of the episode statistics. All randomness
    comes from `key`, one key per step; with `reproducible=True`, environment i equals a `Session` with
    the seed `key + i` (an int or a key).
    `progress=True` draws a bar on standard error; a function is called with (steps done, total steps).
    """
    _check_sizes(num_envs=num_envs, num_steps=num_steps)
    num_envs, num_steps = int(num_envs), int(num_steps)
    check_restarts(restarts)
    if not isinstance(env, Environment) or not env.traced:
        raise ValidationError("env", env, "a pure environment; step a host environment with Session")
    params = override(env.default_params(), {} if params is None else params)
    params = jax.tree.map(jnp.asarray, params)
    key = jax_key(key)
    plan = _Plan(env, as_policy(policy), num_envs, collect, reduce, reproducible, restarts)
    carry: Any = None
    pieces: list[Any] = []
    for start, length in _segments(num_steps, progress):
        last = start + length == num_steps
        carry, piece = _run(plan, carry, key, params, jnp.int32(start), length, start == 0, last)
        pieces.append(piece)
        _report(progress, carry, start + length, num_steps)
    transitions = pieces[0] if len(pieces) == 1 else jax.tree.map(lambda *parts: jnp.concatenate(parts), *pieces)
    return carry._replace(transitions=transitions if collect else None)


class _Plan(eqx.Module):
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

        def act_one(lane: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
            return check_result(self.policy, self.policy.act(_lane_key(key, lane), memory, obs))

        return jax.vmap(act_one)(self.lanes(), memories, obs)

    def memories(self, key: Any) -> Any:
        """Memories at the start of an episode."""
        return jax.vmap(lambda lane: self.policy.init(_lane_key(key, lane)))(self.lanes())

    def renew(self, key: Any, memories: Any, done: Any) -> Any:
        """New memories where an episode ended."""
        if not jax.tree.leaves(memories):
            return memories
        choose = jax.vmap(lambda end, new, old: jax.tree.map(lambda a, b: jnp.where(end, a, b), new, old))
        return choose(done, self.memories(key), memories)

    def lanes(self) -> Any:
        return jnp.arange(self.num_envs, dtype=jnp.uint32)

    def first(self, key: Any, lane: Any, params: Any) -> tuple[Any, Any]:
        """`(obs, state)` of environment `lane` before its first step; the state is an Episode if reproducible."""
        if self.reproducible:
            episode, timestep = start_episode(self.env, _add_to_key(random.key_data(key), lane), params)
            return timestep.obs, episode
        return self.env.reset(_lane_key(key, lane), params)

    def step(self, keys: Any, lane: Any, state: Any, action: Any, params: Any) -> tuple[Timestep, Any, Any]:
        """One step of one environment: its timestep, then `(obs, state)` to continue with."""
        key, next_key = keys
        if self.reproducible:
            state, timestep = step_episode(self.env, state, action, params)
            source, make_new = (state, params), self._next_episode
        else:
            result = self.env.step(_lane_key(key, lane), state, action, params)
            state, timestep = result[1], step_timestep(self.env, *result, params)
            source, make_new = (next_key, lane, state, params), self._restart
        done = timestep.terminated | timestep.truncated
        return timestep, *reset_where(make_new, done, source, (timestep.obs, state), self.restarts)

    def _next_episode(self, source: Any) -> tuple[Any, Any]:
        return start_next_episode(self.env, *source)

    def _restart(self, source: Any) -> tuple[Any, Any]:
        key, lane, state, params = source
        return self.env.restart(_lane_key(key, lane), state, params)


class _Episodes(eqx.Module):
    """Sums per environment, added up only at the end: a sum over the batch at every step is slower."""

    current: Float[Array, " envs"]  # return of the running episode
    returns: Float[Array, " envs"]  # sum over the finished episodes
    count: Int[Array, " envs"]
    started: Int[Array, " envs"]  # first step of the running episode: the total length of those before it

    def after(self, timestep: Timestep, time: Any) -> "_Episodes":
        done = timestep.terminated | timestep.truncated
        current = self.current + timestep.reward
        return _Episodes(
            jnp.where(done, 0, current),
            self.returns + jnp.where(done, current, 0),
            self.count + done,
            jnp.where(done, time + 1, self.started),
        )

    def totals(self) -> EpisodeTotals:
        return EpisodeTotals(self.count.sum(), self.returns.sum(), self.started.sum(dtype=jnp.float32))


class _Carry(NamedTuple):
    obs: Any
    state: Any
    memories: Any
    episodes: _Episodes | None
    totals: Any


@eqx.filter_jit
def _run(
    plan: _Plan, carry: Any, key: Any, params: Any, start: Any, length: int, first: bool, last: bool
) -> tuple[Any, Any]:
    """Some steps of a rollout. The first call has no carry, the last returns a Rollout.

    With both ends inside, the compiler drops unused values, such as the observations of a random policy.
    """

    unroll = 1 if jax.default_backend() == "cpu" else min(length, ACCELERATOR_UNROLL)

    def scan_step(carry: _Carry, xs: Any) -> tuple[_Carry, Any]:
        time, keys = xs
        after, summand, transition = _step(plan, carry, keys, params, time)
        after = after._replace(totals=jax.tree.map(lambda total, new: total + new, carry.totals, summand))
        if unroll > 1:  # otherwise XLA fuses several steps and recomputes them for each output
            after = lax.optimization_barrier(after)
        return after, transition if plan.collect else None

    times = start + jnp.arange(length)
    carry = _start(plan, key, params) if first else carry
    carry, transitions = lax.scan(scan_step, carry, (times, _keys(key, times)), unroll=unroll)
    if not last:
        return carry, transitions
    episodes = None if carry.episodes is None else carry.episodes.totals()
    obs = carry.obs if plan.collect else None
    return Rollout(None, carry.totals, episodes, obs), transitions


def _start(plan: _Plan, key: Any, params: Any) -> _Carry:
    obs, state = jax.vmap(plan.first, (None, 0, None))(key, plan.lanes(), params)
    memories = plan.memories(random.fold_in(key, FIRST_MEMORIES))
    none = jnp.zeros(plan.num_envs, jnp.int32)
    episodes = None if plan.reduce else _Episodes(none.astype(jnp.float32), none.astype(jnp.float32), none, none)
    carry = _Carry(obs, state, memories, episodes, None)
    totals = jax.eval_shape(lambda carry: _step(plan, carry, _keys(key, jnp.zeros(1, int))[0], params, 0)[1], carry)
    return carry._replace(totals=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), totals))


def _keys(key: Any, times: Any) -> Any:
    """Three keys per step: for the policy, the environments and their next episodes.

    They are derived in one kernel, outside the loop.
    """
    return jax.vmap(lambda time: random.split(random.fold_in(key, time), 3))(times)


def _step(plan: _Plan, carry: _Carry, keys: Any, params: Any, time: Any) -> tuple[_Carry, Any, Transition]:
    """All environments, one step: the carry, what `reduce` makes of it, and the transition."""
    action, memories = plan.act(keys[0], carry.memories, carry.obs)
    step = jax.vmap(plan.step, (None, 0, 0, 0, None))
    timestep, obs, state = step((keys[1], keys[2]), plan.lanes(), carry.state, action, params)
    memories = plan.renew(random.fold_in(keys[0], FIRST_MEMORIES), memories, timestep.terminated | timestep.truncated)
    transition = Transition(carry.obs, action, *timestep[1:4], timestep.obs, timestep.info)
    summand = plan.reduce(transition) if plan.reduce else None
    episodes = None if carry.episodes is None else carry.episodes.after(timestep, time)
    return _Carry(obs, state, memories, episodes, carry.totals), summand, transition


def _lane_key(key: Any, lane: Any) -> Any:
    """The key of one environment. Adding the lane makes it unique, and every draw from it is hashed anyway:
    hashing it here too would cost as much as a step of a small environment."""
    data = random.key_data(key)
    if data.shape != (2,):
        return random.fold_in(key, lane)
    words = _add_to_key(data, lane)
    return random.wrap_key_data(words, impl=random.key_impl(key)) if _is_typed(key) else words


def _is_typed(key: Any) -> bool:
    return jnp.issubdtype(key.dtype, jax.dtypes.prng_key)


def _add_to_key(words: Any, lane: Any) -> Any:
    """The key of seed + lane: 64-bit addition in two 32-bit words."""
    low = words[1] + lane
    return jnp.stack([words[0] + (low < words[1]), low])


def _segments(num_steps: int, progress: Any) -> list[tuple[int, int]]:
    length = -(-num_steps // REPORTS) if progress else num_steps
    return [(start, min(length, num_steps - start)) for start in range(0, num_steps, length)]


def _report(progress: Any, carry: Any, done: int, total: int) -> None:
    if not progress:
        return
    jax.block_until_ready(carry)
    if callable(progress):
        progress(done, total)
        return
    filled = 40 * done // total
    end = "\n" if done == total else ""
    sys.stderr.write(f"\rrollout [{'#' * filled}{'.' * (40 - filled)}] {done}/{total} steps{end}")
    sys.stderr.flush()


def _check_sizes(**sizes: Any) -> None:
    for name, size in sizes.items():
        check_count(name, size)
