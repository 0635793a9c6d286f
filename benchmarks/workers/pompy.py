"""Plumes of other projects: pompy's filaments, and the update of Singh et al. as a plain NumPy loop.

The code of Singh et al. is not on the package index; the loop has the same arithmetic without data frames.
"""

import importlib
from typing import Any

import numpy as np

from benchmarks.worker import Run, serve

models: Any = importlib.import_module("pompy.models")

NUM_FILAMENTS, NUM_PUFFS, DT = 500, 2000, 0.01


def filaments(num_envs: int) -> Run:
    """Each plume has its own wind; all its puffs exist from the start and stay in the arena."""
    plumes: list[Any] = []
    for seed in range(num_envs):
        rng = np.random.RandomState(seed)
        region = models.Rectangle(0.0, 100.0, -50.0, 50.0)
        wind = models.WindModel(region, 21, 21, 1.0, 0.0, 10.0, 10.0, 2.0, 0.1, 0.2, rng=rng)
        options = {
            "model_z_disp": False,
            "puff_release_rate": 20,
            "init_num_puffs": NUM_FILAMENTS,
            "max_num_puffs": NUM_FILAMENTS,
        }
        plumes.append((wind, models.PlumeModel(region, (20.0, 0.0), wind, rng=rng, **options)))

    def run(num_steps: int, seed: int) -> float:  # noqa: ARG001 - each plume has its own generator
        total = 0.0
        for _ in range(num_steps):
            for wind, plume in plumes:
                wind.update(DT)
                plume.update(DT)
                total += len(plume.puffs) / NUM_FILAMENTS
        return total

    return run


def puffs(num_envs: int) -> Run:
    start = np.tile(np.linspace(10.0, 0.0, NUM_PUFFS, endpoint=False), (num_envs, 1))
    plumes = [(x, np.zeros(NUM_PUFFS), 0.01 + 0.02 * x) for x in start]

    def run(num_steps: int, seed: int) -> float:
        rng = np.random.default_rng(seed)
        total = 0.0
        for _ in range(num_steps):
            for index, plume in enumerate(plumes):
                plumes[index] = singh_update(rng, *plume)
                total += plumes[index][0].size / NUM_PUFFS
        return total

    return run


def singh_update(rng: Any, x: Any, y: Any, radius: Any) -> tuple[Any, Any, Any]:
    x = x + 0.5 * DT
    y = y + rng.normal(0, 0.5, y.size) * DT
    radius = radius + 0.01 * DT
    inside = (radius > 0) & (x < 10) & (y < 10) & (x > -2) & (y > -10)
    born = rng.poisson(1.0)
    x, y = np.append(x[inside], np.zeros(born)), np.append(y[inside], np.zeros(born))
    return x, y, np.append(radius[inside], np.full(born, 0.01))


if __name__ == "__main__":
    serve({"filaments": filaments, "puffs": puffs}, ("pompy", "numpy"), lambda: "cpu")
