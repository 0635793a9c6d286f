"""The Python loops that step Gymnasium-like environments, for Tropism and for the peers."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.worker import Run


def vector_loop(step: Callable[[Any], Any], num_envs: int, action_dtype: str = "int64") -> Run:
    """A loop of random actions for a vector environment that was reset once and resets itself afterwards."""

    def run(num_steps: int, seed: int) -> float:
        rng = np.random.default_rng(seed)
        total = 0.0
        for _ in range(num_steps):
            actions = rng.integers(0, 2, num_envs, dtype=action_dtype)
            obs, reward, terminated, truncated, _info = step(actions)
            total += float(np.add.reduce(obs, axis=None)) + float(np.add.reduce(reward))
            total += int(np.count_nonzero(terminated)) + int(np.count_nonzero(truncated))
        return total

    return run


def single_loop(env: Any, action_bits: int = 1, num_envs: int = 1) -> Run:
    """A loop of random actions for one environment, which is reset when an episode ends.

    It takes the total steps of `num_envs` environments, which is faster than stepping that many in turn.
    """
    env.reset(seed=0)

    def run(num_steps: int, seed: int) -> float:
        coin = random.Random(seed).getrandbits
        total = 0.0
        for _ in range(num_envs * num_steps):
            obs, reward, terminated, truncated, _info = env.step(coin(action_bits))
            total += sum(obs.tolist()) + float(reward) + terminated + truncated
            if terminated or truncated:
                env.reset()
        return total

    return run
