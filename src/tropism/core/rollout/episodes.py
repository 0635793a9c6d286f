"""Runs many seeded episodes of a pure environment to their ends, compiled, under a policy with memory."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jaxtyping import Array, Bool, Float, Int, UInt32

from tropism.core.devices import map_on_devices, num_devices, replicate, split_lanes
from tropism.core.environment import Environment
from tropism.core.episode import Episode, Timestep, check_seed, seed_words, start_episode, step_episode
from tropism.core.rollout.policy import Policy
from tropism.core.spaces.space import check_count

MAX_STEPS = 100_000  # of an episode that does not end
POLICY_STREAM = 2**32 - 2  # folded into the key, beyond all steps: the policy's stream differs from the environment's

Probe = Callable[[Any, Any, Timestep], Any]
"""`(previous value, state, timestep) -> value`; the previous value is None at the start of an episode."""


class EpisodeOutcomes(eqx.Module):
    """The outcome of each episode."""

    steps: Int[Array, " episodes"]
    reward: Float[Array, " episodes"]  # summed
    terminated: Bool[Array, " episodes"]
    probe_values: Any  # at the end of each episode
    trace: Any  # the probe's values (step, episode) from the start, constant after an episode's end; or None


def run_episodes(
    env: Environment,
    policy: Policy,
    seed: int,
    num_episodes: int,
    params: Any,
    probe: Probe,
    trace_length: int = 0,
    params_axes: Any = None,
) -> EpisodeOutcomes:
    """Episode i is that of a `Session` with the seed `seed + i`; the trace has its first `trace_length` values.

    `params_axes`, as in `jax.vmap`, selects params that differ between episodes.
    """
    check_count("num_episodes", num_episodes)
    seeds = np.stack([seed_words(check_seed(seed) + episode) for episode in range(num_episodes)])
    # Arrays, so that a new number does not compile again; other leaves are compiled in.
    policy = jax.tree.map(lambda leaf: jnp.asarray(leaf) if eqx.is_array_like(leaf) else leaf, policy)
    # Devices take equal parts; a few episodes are run twice to fill the last one.
    seeds = np.concatenate([seeds, seeds[:1].repeat((-num_episodes % num_devices() if params_axes is None else 0), 0)])
    params, seeds = jax.tree.map(jnp.asarray, (params, seeds))
    outcomes = _run(env, policy, params, probe, trace_length, params_axes, seeds)
    return outcomes if len(seeds) == num_episodes else _first_episodes(outcomes, num_episodes)


def _first_episodes(outcomes: EpisodeOutcomes, count: int) -> EpisodeOutcomes:
    trace = jax.tree.map(lambda leaf: leaf[:, :count], outcomes.trace)
    rest = replace(outcomes, trace=None)
    return replace(jax.tree.map(lambda leaf: leaf[:count], rest), trace=trace)


class Lane(eqx.Module):
    """One episode and its outcome so far; steps after its end do not change the outcome."""

    episode: Episode
    memory: Any
    obs: Any
    ended: Bool[Array, ""]
    steps: Int[Array, ""]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    probe_value: Any


@eqx.filter_jit
def _run(
    env: Environment,
    policy: Any,
    params: Any,
    probe: Probe,
    trace_length: int,
    params_axes: Any,
    seeds: UInt32[Array, "episodes 2"],
) -> EpisodeOutcomes:
    run = partial(_run_lanes, env, policy, params, probe, trace_length, params_axes)
    if params_axes is not None:  # the params would have to be split, too
        return EpisodeOutcomes(*run(seeds))
    return EpisodeOutcomes(*replicate(map_on_devices(run, split_lanes(seeds), out_axes=(0, 0, 0, 0, 1))))


def _run_lanes(
    env: Environment, policy: Any, params: Any, probe: Probe, trace_length: int, params_axes: Any, seeds: Any
) -> tuple[Any, ...]:
    """The fields of EpisodeOutcomes."""
    axes = (0, params_axes)
    lanes = jax.vmap(lambda seed, lane_params: start_lane(env, policy, lane_params, probe, seed), axes)(seeds, params)
    trace = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (trace_length, *leaf.shape)), lanes.probe_value)

    def step(carry: Any) -> Any:
        time, lanes, trace = carry
        lanes = jax.vmap(lambda lane, lane_params: step_lane(env, policy, lane_params, probe, lane), axes)(
            lanes, params
        )
        if trace_length:
            trace = jax.tree.map(lambda rows, row: rows.at[time + 1].set(row, mode="drop"), trace, lanes.probe_value)
        return time + 1, lanes, trace

    def is_running(carry: Any) -> Any:
        return ~carry[1].ended.all() & (carry[0] < MAX_STEPS)

    time, lanes, trace = lax.while_loop(is_running, step, (jnp.int32(0), lanes, trace))

    def fill_unreached(rows: Any, last: Any) -> Any:
        unreached = (jnp.arange(trace_length) > time).reshape(-1, *[1] * last.ndim)
        return jnp.where(unreached, last, rows)

    trace = jax.tree.map(fill_unreached, trace, lanes.probe_value) if trace_length else None
    return lanes.steps, lanes.reward, lanes.terminated, lanes.probe_value, trace


def start_lane(env: Environment, policy: Any, params: Any, probe: Probe, seed: UInt32[Array, " 2"]) -> Lane:
    episode, timestep = start_episode(env, seed, params)
    memory, false = policy.init(policy_key(episode.key)), jnp.bool_(False)
    value = probe(None, episode.state, timestep)
    return Lane(episode, memory, timestep.obs, false, jnp.int32(0), jnp.float32(0), false, value)


def step_lane(env: Environment, policy: Any, params: Any, probe: Probe, lane: Lane) -> Lane:
    key = random.fold_in(policy_key(lane.episode.key), lane.episode.time)
    action, memory = policy.act(key, lane.memory, lane.obs)
    episode, timestep = step_episode(env, lane.episode, action, params)
    before = (lane.steps, lane.reward, lane.terminated, lane.probe_value)
    after = (
        lane.steps + 1,
        lane.reward + timestep.reward,
        timestep.terminated,
        probe(lane.probe_value, episode.state, timestep),
    )
    outcome = jax.tree.map(lambda old, new: jnp.where(lane.ended, old, new), before, after)
    return Lane(episode, memory, timestep.obs, lane.ended | timestep.terminated | timestep.truncated, *outcome)


def policy_key(seed: UInt32[Array, " 2"]) -> Any:
    """The policy's key in the episode of this seed: for its first memory and, with a step folded in, for that step."""
    return random.fold_in(random.wrap_key_data(seed, impl="threefry2x32"), POLICY_STREAM)
