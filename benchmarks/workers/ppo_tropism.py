"""Tropism's PPO on CartPole with its preset or with PureJaxRL's hyperparameters, timed with compilation."""

import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks.last_episodes import LastEpisodes
from benchmarks.worker import package_version
from tropism.core.registry import presets
from tropism.train.ppo import PPOConfig
from tropism.train.training import Training
from tropism.train.updates import run_updates

NUMBERS: dict[int, dict[str, Any]] = {16: presets("ppo")["CartPole-v1"], 4: {"num_envs": 4, "learning_rate": 2.5e-4}}


def train(num_envs: int, seed: int, total_steps: int, to_learnt: bool) -> dict[str, Any]:
    """One training; with `to_learnt` it stops when learnt. `compiling` is the time until the first update is done."""
    start = time.perf_counter()
    config = PPOConfig(total_steps=total_steps, **NUMBERS[num_envs])
    training = Training("CartPole-v1", {}, {}, config, seed, 1)
    trainer = training.make_algorithm()
    state = training.start(trainer)
    episodes, update, compiling = LastEpisodes(), 0, 0.0
    while update < config.num_updates and not (to_learnt and episodes.learnt):
        state, progress = run_updates(trainer, state, 1)
        episodes.add(int(np.sum(progress.episodes)), float(np.sum(progress.returns)))
        update += 1
        compiling = compiling or time.perf_counter() - start
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "compiling": compiling, "steps": update * config.batch, "mean": episodes.mean}


def main() -> None:
    versions = {name: package_version(name) for name in ("tropism", "jax")}
    print(json.dumps({**train(**json.loads(sys.argv[1])), "versions": versions}))


if __name__ == "__main__":
    main()
