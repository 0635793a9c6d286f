"""Draw the pictures of docs/science.md: one search of two strategies, and distributions of search times."""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke

from tropism import make
from tropism.core.rollout.stepped import SteppedPolicy
from tropism.train.evaluation import evaluate
from tropism.train.pictures import draw_search_times

HERE = Path(__file__).parent / "pictures"
ID = "SourceTracking19x19-v0"
SHOWN = ("infotaxis", "space-aware-infotaxis", "mean-distance", "thompson")
COLUMNS = 4  # moments of a search


def record(strategy: str, seed: int) -> list[Any]:
    """The states of one search."""
    env, params = make(ID)
    policy, states = SteppedPolicy(env.strategies(params)[strategy](), True), []
    key = jax.random.wrap_key_data(np.array([0, seed], np.uint32))
    obs, state = jax.jit(env.reset)(key, params)
    step, done = jax.jit(env.step), False
    policy.reset(seed)
    while not done:
        states.append(state)
        key, step_key = jax.random.split(key)
        obs, state, _, done, _ = step(step_key, state, policy.act(np.asarray(obs)), params)
    return [*states, state]


def draw_searches(path: Path, seed: int) -> None:
    """A row per strategy: the belief, the path and its hits, at equal fractions of the search."""
    rows = {name: record(name, seed) for name in SHOWN[:2]}
    figure = Figure((3 * COLUMNS, 3.1 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), COLUMNS, squeeze=False)
    edge = [Stroke(linewidth=3.5, foreground="#05070f"), Normal()]
    for axes_row, (name, states) in zip(grid, rows.items(), strict=True):
        for axes, moment in zip(axes_row, np.linspace(0, len(states) - 1, COLUMNS).astype(int), strict=True):
            path_xy = np.array([np.asarray(state.position) for state in states[: moment + 1]])
            hit = np.array([int(state.hits) > 0 for state in states[: moment + 1]])
            axes.imshow(np.sqrt(np.asarray(states[moment].belief)).T, origin="lower", cmap="viridis")
            axes.plot(*path_xy.T, color="white", linewidth=1.5, path_effects=edge)
            axes.plot(*path_xy[hit].T, "o", color="#ff5c38", markersize=6, markeredgecolor="#05070f")
            axes.plot(*path_xy[-1], "s", color="white", markersize=7, markeredgecolor="#05070f")
            axes.plot(*np.asarray(states[0].source), "x", color="#ffd60a", markersize=9, markeredgewidth=2.5)
            axes.set(xticks=[], yticks=[], title=f"step {moment}")
        axes_row[0].set_ylabel(name)
    figure.savefig(path, dpi=90)


def draw_distributions(path: Path, searches: int) -> None:
    env, params = make(ID, draw_source=False, observation="belief")
    results = [evaluate(name, env, params, env.strategies(params)[name](), 0, searches) for name in SHOWN]
    draw_search_times(ID, results, path)


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    draw_searches(out / "source_tracking.png", seed=6)
    draw_distributions(out / "search_times.png", searches=1000)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
