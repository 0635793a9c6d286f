"""The distribution of search times, from episodes with a drawn source or weighted by probability."""

from typing import Any

import numpy as np

from tropism.core.environment import Environment
from tropism.core.rollout.episodes import run_episodes
from tropism.core.search_task import SearchTimes

BATCH = 128  # searches that run at once: small, so that their beliefs stay in the cache and few lanes idle


def search_times(env: Environment, policy: Any, seed: int, num_episodes: int, params: Any) -> SearchTimes:
    """Run a pure policy, compiled; episode i is that of a `Session` with the seed `seed + i`.

    In a search without a source, a step finds it with the probability that the belief gives to the agent's cell.
    """
    size = min(BATCH, num_episodes)
    moments = int(params.max_steps) + 1
    rows: list[Any] = []
    for done in range(0, num_episodes, size):
        outcome = run_episodes(env, policy, seed + done, size, params, _not_found, moments)
        rows.append(np.asarray(outcome.trace, float)[:, : num_episodes - done])
    return SearchTimes.from_survival(np.concatenate(rows, 1))


def _not_found(_previous: Any, _state: Any, timestep: Any) -> Any:
    return timestep.info["not_found"]
