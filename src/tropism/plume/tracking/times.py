"""The distribution of search times, from episodes with a drawn source or weighted by probability."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tropism.core.environment import Environment
from tropism.core.episode import check_seed, seed_words
from tropism.core.rollout.episodes import start_lane, step_lane
from tropism.core.search_task import SearchTimes
from tropism.core.spaces.space import check_count

LANES = {"cpu": 128}  # searches that run at once, by backend
ACCELERATOR_LANES = 1024
FEW = 16  # lanes while the last searches run
SEGMENT = 16  # steps before finished searches are replaced by the next ones


class _Searches(NamedTuple):
    """Running searches, and the results so far; the search in lane i has the number `index[i]`."""

    lanes: Any
    index: Any
    next: Any  # number of the first search that has not started
    found: Any  # (steps + 1,): the probability to find the source in each step, summed over searches
    weighted: Any  # (searches,): the sum of times, weighted by the probability to find the source at that time
    not_found: Any  # (searches,)


def search_times(env: Environment, policy: Any, seed: int, num_episodes: int, params: Any) -> SearchTimes:
    """Run a pure policy, compiled; episode i is that of a `Session` with the seed `seed + i`.

    In a search without a source, a step finds it with the probability that the belief gives to the agent's cell.
    """
    check_count("num_episodes", num_episodes)
    seeds = np.stack([seed_words(check_seed(seed) + episode) for episode in range(num_episodes)])
    policy, params = jax.tree.map(lambda leaf: jnp.asarray(leaf) if eqx.is_array_like(leaf) else leaf, (policy, params))
    lanes = min(LANES.get(jax.default_backend(), ACCELERATOR_LANES), num_episodes)
    searches = _start(env, policy, params, seeds, lanes, int(params.max_steps) + 1)
    searches = _run(env, policy, params, seeds, searches, FEW)
    unfinished = np.argsort(~np.asarray(searches.index < num_episodes), kind="stable")[:FEW]
    few = jax.tree.map(lambda leaf: leaf[unfinished], (searches.lanes, searches.index))
    searches = _run(env, policy, params, seeds, searches._replace(lanes=few[0], index=few[1]), 0)
    found, weighted, not_found = (np.asarray(each, float) for each in searches[3:])
    steps = np.where(not_found < 1, weighted / np.maximum(1 - not_found, 1e-30), np.nan)
    return SearchTimes(found / num_episodes, steps, not_found)


@eqx.filter_jit
def _start(env: Environment, policy: Any, params: Any, seeds: Any, lanes: int, moments: int) -> _Searches:
    started = jax.vmap(lambda words: start_lane(env, policy, params, _track, words))(seeds[:lanes])
    zeros = jnp.zeros(len(seeds))
    return _Searches(started, jnp.arange(lanes, dtype=jnp.int32), jnp.int32(lanes), jnp.zeros(moments), zeros, zeros)


@eqx.filter_jit
def _run(env: Environment, policy: Any, params: Any, seeds: Any, searches: _Searches, leave: int) -> _Searches:
    """Run until all searches have started and at most `leave` are unfinished."""
    total = len(seeds)

    def step(_: Any, searches: _Searches) -> _Searches:
        lanes = jax.vmap(lambda lane: step_lane(env, policy, params, _track, lane))(searches.lanes)
        found = jnp.where(searches.index < total, searches.lanes.probe_value[0] - lanes.probe_value[0], 0)
        return searches._replace(lanes=lanes, found=searches.found.at[lanes.steps].add(found))

    def segment(searches: _Searches) -> _Searches:
        lanes, index, first, found, weighted, not_found = lax.fori_loop(0, SEGMENT, step, searches)
        place = jnp.where(lanes.ended, index, total)  # beyond the end: dropped
        not_found = not_found.at[place].set(lanes.probe_value[0], mode="drop")
        weighted = weighted.at[place].set(lanes.probe_value[1], mode="drop")
        index = jnp.where(lanes.ended, jnp.minimum(first + jnp.cumsum(lanes.ended, dtype=jnp.int32) - 1, total), index)
        first = jnp.minimum(first + lanes.ended.sum(dtype=jnp.int32), total)
        new = jax.vmap(lambda words: start_lane(env, policy, params, _track, words))(
            seeds[jnp.minimum(index, total - 1)]
        )

        def choose(new: Any, old: Any) -> Any:
            return jnp.where(lanes.ended.reshape(-1, *[1] * (old.ndim - 1)), new, old)

        return _Searches(jax.tree.map(choose, new, lanes), index, first, found, weighted, not_found)

    def is_running(searches: _Searches) -> Any:
        return (searches.next < total) | (jnp.sum(searches.index < total) > leave)

    return lax.while_loop(is_running, segment, searches)


def _track(previous: Any, _state: Any, timestep: Any) -> tuple[Any, Any, Any]:
    """`(probability not found yet, weighted sum of times, time)`."""
    not_found = timestep.info["not_found"]
    if previous is None:
        return not_found, jnp.zeros_like(not_found), jnp.zeros_like(not_found)
    before, weighted, time = previous
    return not_found, weighted + (time + 1) * (before - not_found), time + 1
