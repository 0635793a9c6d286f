"""Trials: many seeded episodes of a pure environment under a policy that remembers, compiled, each to its end."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jaxtyping import Array, Bool, Float, Int, UInt32

from tropism.core.environment import Environment
from tropism.core.episode import Episode, Timestep, advance, begin, check_seed, seed_words
from tropism.core.rollout.policy import Policy
from tropism.core.spaces.space import check_count

LONGEST = 100_000  # steps of an episode that has no end of its own
ACTOR = 2**32 - 2  # folded into the key, beyond all steps: an actor's draws are not its environment's

Note = Callable[[Any, Any, Timestep], Any]
"""`(note so far, state, timestep) -> note`; before the first step of an episode there is None."""


class Trials(eqx.Module):
    """What became of each episode."""

    steps: Int[Array, " episodes"]
    reward: Float[Array, " episodes"]  # summed
    terminated: Bool[Array, " episodes"]
    notes: Any  # as they were at the end of each
    moments: Any  # a note of each step, from the start; those of a finished episode stay as they were. Or None


def trials(
    env: Environment, policy: Policy, seed: int, num_episodes: int, params: Any, note: Note, num_moments: int = 0
) -> Trials:
    """Episode i is the one that a `Session` with the seed `seed + i` begins; `num_moments` notes of each are kept."""
    check_count("num_episodes", num_episodes)
    seeds = np.stack([seed_words(check_seed(seed) + episode) for episode in range(num_episodes)])
    policy, params, seeds = jax.tree.map(jnp.asarray, (policy, params, seeds))
    return _trials(env, policy, params, seeds, note, num_moments)


class _Lane(eqx.Module):
    """One episode, and what is known of it; steps after its end do not change that."""

    episode: Episode
    memory: Any
    obs: Any
    ended: Bool[Array, ""]
    steps: Int[Array, ""]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    note: Any


@eqx.filter_jit
def _trials(
    env: Environment, policy: Any, params: Any, seeds: UInt32[Array, "episodes 2"], note: Note, num_moments: int
) -> Trials:
    lanes = jax.vmap(lambda seed: _first(env, policy, params, note, seed))(seeds)
    moments = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_moments, *leaf.shape)), lanes.note)

    def step(carry: Any) -> Any:
        time, lanes, moments = carry
        lanes = jax.vmap(lambda lane: _next(env, policy, params, note, lane))(lanes)
        if num_moments:
            moments = jax.tree.map(lambda kept, now: kept.at[time + 1].set(now, mode="drop"), moments, lanes.note)
        return time + 1, lanes, moments

    def going_on(carry: Any) -> Any:
        return ~carry[1].ended.all() & (carry[0] < LONGEST)

    time, lanes, moments = lax.while_loop(going_on, step, (jnp.int32(0), lanes, moments))

    def rested(noted: Any, last: Any) -> Any:
        later = (jnp.arange(num_moments) > time).reshape(-1, *[1] * last.ndim)
        return jnp.where(later, last, noted)

    kept = jax.tree.map(rested, moments, lanes.note) if num_moments else None
    return Trials(lanes.steps, lanes.reward, lanes.terminated, lanes.note, kept)


def _first(env: Environment, policy: Any, params: Any, note: Note, seed: UInt32[Array, " 2"]) -> _Lane:
    episode, timestep = begin(env, seed, params)
    memory, no = policy.init(actor_key(episode.key)), jnp.bool_(False)
    noted = note(None, episode.state, timestep)
    return _Lane(episode, memory, timestep.obs, no, jnp.int32(0), jnp.float32(0), no, noted)


def _next(env: Environment, policy: Any, params: Any, note: Note, lane: _Lane) -> _Lane:
    key = random.fold_in(actor_key(lane.episode.key), lane.episode.time)
    action, memory = policy.act(key, lane.memory, lane.obs)
    episode, timestep = advance(env, lane.episode, action, params)
    before = (lane.steps, lane.reward, lane.terminated, lane.note)
    after = (
        lane.steps + 1,
        lane.reward + timestep.reward,
        timestep.terminated,
        note(lane.note, episode.state, timestep),
    )
    known = jax.tree.map(lambda old, new: jnp.where(lane.ended, old, new), before, after)
    return _Lane(episode, memory, timestep.obs, lane.ended | timestep.terminated | timestep.truncated, *known)


def actor_key(seed: UInt32[Array, " 2"]) -> Any:
    """What an actor draws from in the episode of this seed: its first memory, and with a step folded in, that step."""
    return random.fold_in(random.wrap_key_data(seed, impl="threefry2x32"), ACTOR)
