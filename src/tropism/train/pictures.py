"""Plots of evaluations: paths of searches, success by start and over time, returns."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke
from numpy.typing import NDArray

from tropism.core.episode import seed_words, start_episode, step_episode
from tropism.core.search_task import SearchTask
from tropism.drawing.plots import COLORS, new_plot, save_plot
from tropism.train.evaluation import Evaluation, SearchResults, success_by_distance

EPISODES_SHOWN = 3  # columns of paths; episode i is the same one for every policy
SHOWN_SHARE = 0.9  # of the searches that find the source: the range of times in a plot of their distribution
BINS = 6  # of a start map, along each side
SIDE = 2.6  # inches, of one arena
FOUND, NOT_FOUND, EDGE = "#ffffff", "#ff5c38", "#05070f"
SHARES = ScalarMappable(Normalize(0, 1), "viridis")


def draw_evaluation(id: str, env: Any, params: Any, evaluations: Sequence[Evaluation], path: Path) -> None:
    """Searches: paths over the arena of each episode, and success by start, or search times; other tasks: returns."""
    if all(each.times is not None for each in evaluations):
        return draw_search_times(id, evaluations, path)
    if not isinstance(env, SearchTask) or any(each.search is None for each in evaluations):
        return _draw_returns(id, evaluations, path)
    shown = min(EPISODES_SHOWN, len(evaluations[0].returns))
    shape = (env.high[1] - env.low[1]) / (env.high[0] - env.low[0])
    figure = Figure((SIDE * (shown + 1) + 1.4, SIDE * shape * len(evaluations) + 1.8), layout="compressed")
    grid = figure.subplots(len(evaluations), shown + 1, squeeze=False)
    draw_background = _background_renderer(env, params)
    for row, each in zip(grid, evaluations, strict=True):
        for episode in range(shown):
            background = draw_background(each.seed + episode, int(each.lengths[episode]))
            _draw_path(row[episode], env, params, background, each, episode)
        _draw_starts(row[-1], each.search, env)
        rate = each.search.success  # pyright: ignore[reportOptionalMemberAccess]
        label = f"{each.policy}\nfound {rate.mean:.0%}\n({rate.low:.0%}–{rate.high:.0%})"
        row[0].set_ylabel(label, fontsize=10, rotation=0, ha="right", va="center", labelpad=8)
    for episode in range(shown):
        grid[0, episode].set_title(f"seed {evaluations[0].seed + episode}", fontsize=10)
    grid[0, -1].set_title("success by start", fontsize=10)
    figure.colorbar(SHARES, ax=grid[:, -1], location="bottom", shrink=0.8, aspect=14, label="found (grey: no start)")
    figure.suptitle(f"{id}: {len(evaluations[0].returns)} episodes, the same for each policy", fontsize=12)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    return None


def draw_success_over_time(evaluations: Sequence[Evaluation], path: Path) -> None:
    """The share of episodes that found the source, by step."""
    figure, axes = new_plot(4.0)
    for color, each in zip(COLORS * len(evaluations), evaluations, strict=False):
        if each.search is not None:
            steps, searching = each.survival(int(each.lengths.max()) + 1)
            axes.plot(steps, 1 - searching, color=color, linewidth=2, label=each.policy)
    axes.set(xlabel="steps", ylabel="found the source", ylim=(0, 1.02))
    axes.legend(frameon=False)
    save_plot(figure, axes, path)


def draw_success_by_distance(evaluations: Sequence[Evaluation], path: Path) -> None:
    """The success rate and its interval against the distance at the start."""
    figure, axes = new_plot(4.0)
    for color, each in zip(COLORS * len(evaluations), evaluations, strict=False):
        if each.search is not None and each.search.start_distance is not None:
            bins = success_by_distance(each.search)
            middle = [(part["from"] + part["to"]) / 2 for part in bins]
            axes.plot(middle, [part["mean"] for part in bins], "o-", color=color, label=each.policy)
            axes.fill_between(
                middle, [part["low"] for part in bins], [part["high"] for part in bins], color=color, alpha=0.15
            )
    axes.set(xlabel="distance to the source at the start", ylabel="found the source", ylim=(0, 1.02))
    axes.legend(frameon=False)
    save_plot(figure, axes, path)


def draw_search_times(id: str, evaluations: Sequence[Evaluation], path: Path) -> None:
    """The distribution of search times, and the probability to have found the source, by step."""
    figure = Figure((10, 4), layout="constrained")
    density, cumulative = figure.subplots(1, 2)
    last = 1
    for color, each in zip(COLORS * len(evaluations), evaluations, strict=False):
        if each.times is not None:
            found = np.cumsum(each.times.found)
            last = max(last, int(np.argmax(found >= SHOWN_SHARE * found[-1])))
            density.plot(each.times.found, color=color, linewidth=1.6, label=each.policy)
            cumulative.plot(found, color=color, linewidth=1.6, label=each.policy)
    density.set(title=id, xlabel="steps to find the source", ylabel="probability", xlim=(0, last), ylim=(0, None))
    cumulative.set(xlabel="steps", ylabel="probability that the source is found", xlim=(0, last), ylim=(0, 1.02))
    cumulative.legend(frameon=False)
    density.spines[["top", "right"]].set_visible(False)
    density.grid(alpha=0.25)
    save_plot(figure, cumulative, path)


def _draw_returns(id: str, evaluations: Sequence[Evaluation], path: Path) -> None:
    figure, axes = new_plot(1.2 + 0.7 * len(evaluations))
    axes.boxplot([each.returns for each in evaluations], orientation="horizontal", showmeans=True)
    axes.set_yticks(range(1, len(evaluations) + 1), [each.policy for each in evaluations])
    axes.invert_yaxis()  # the first policy on top, as in the table
    label = "return of an episode (box: quartiles, bar: median, triangle: mean)"
    axes.set(title=f"{id}: the same {len(evaluations[0].returns)} episodes for each", xlabel=label)
    save_plot(figure, axes, path)


def _background_renderer(env: Any, params: Any) -> Callable[[int, int], NDArray[Any]]:
    """A function that draws the background of a seed at a step; it does not depend on the agent's actions."""
    action = env.action_space(params).sample(jax.random.key(0))

    @jax.jit
    def paint(words: Any, steps: Any, params: Any) -> Any:
        first = start_episode(env, words, params)[0]
        last = lax.fori_loop(0, steps, lambda _, episode: step_episode(env, episode, action, params)[0], first)
        return env.background(last.state, params)

    return lambda seed, steps: np.asarray(paint(seed_words(seed), steps, params)) / 255


def _draw_path(
    axes: Axes, env: SearchTask, params: Any, background: NDArray[Any], evaluation: Evaluation, episode: int
) -> None:
    """The path of one episode, over the arena at its end."""
    search, steps = evaluation.search, int(evaluation.lengths[episode])
    assert search is not None
    extent = (env.low[0], env.high[0], env.low[1], env.high[1])
    axes.imshow(background, origin="lower", extent=extent)
    edge = [Stroke(linewidth=3.4, foreground=EDGE), Normal()]
    color, outcome = (FOUND, "found") if search.found[episode] else (NOT_FOUND, "not found")
    path = search.paths[: steps + 1, episode]
    axes.plot(*path.T, color=color, linewidth=1.6, path_effects=edge, solid_joinstyle="round")
    axes.plot(*path[0], "o", color=color, markersize=6, markeredgecolor=EDGE)
    angle = np.linspace(0, 2 * np.pi, 60)
    center, radius = env.goal(params)
    ring = np.asarray(center) + radius * np.stack([np.cos(angle), np.sin(angle)], -1)
    axes.plot(*ring.T, color="#ffd60a", linewidth=1.6, path_effects=edge)
    axes.set(xlim=extent[:2], ylim=extent[2:], xticks=[], yticks=[])
    axes.set_xlabel(f"{outcome}, {steps} steps", fontsize=9)


def _draw_starts(axes: Axes, search: SearchResults | None, env: SearchTask) -> None:
    """The success rate by start position, at the scale of the paths."""
    assert search is not None
    x, y = search.paths[0].T
    edges = [np.linspace(side.min(), side.max() + 1e-6, BINS + 1) for side in (x, y)]
    starts = np.histogram2d(x, y, edges)[0]
    successes = np.histogram2d(x[search.found], y[search.found], edges)[0]
    share = np.where(starts > 0, successes / np.maximum(starts, 1), np.nan)
    axes.pcolormesh(*edges, share.T, vmin=0, vmax=1, cmap=SHARES.cmap)
    axes.set(facecolor="#9aa0ac", xticks=[], yticks=[], xlim=(env.low[0], env.high[0]), ylim=(env.low[1], env.high[1]))
    axes.set_aspect("equal")
