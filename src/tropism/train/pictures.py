"""Pictures of trainings and evaluations: learning curves, ways through a plume, where searches begin well."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tropism.core.episode import begin, seed_words
from tropism.envs.plume_nav import PlumeNav
from tropism.plume import picture
from tropism.train.evaluate import Evaluation, Search

SHOWN = 24  # ways in a picture: more hide one another
WINDOW = 5  # reports that a learning curve is smoothed over
BINS = 6  # of a start map, along each side
SIDE = 3.4  # inches
COLORS = ("#d1495b", "#00798c", "#edae49", "#66a182", "#6a4c93", "#2e4057")
FOUND, LOST = "#ffd60a", "#ff5c38"


def learning_curve(id: str, history: Sequence[Any], path: Path) -> None:
    """Every agent's curve, and their mean with its interval where they are several."""
    figure = Figure((7, 4), layout="constrained")
    axes = figure.subplots()
    steps = np.array([row[0] for row in history])
    returns = _smooth(np.array([row[1] for row in history], float))  # None becomes NaN
    many = returns.shape[1] > 1
    axes.plot(steps, returns, color=COLORS[1], alpha=0.25 if many else 1.0, linewidth=1 if many else 2)
    if many:
        known = np.maximum(1, (~np.isnan(returns)).sum(1))
        mean = np.where(np.isnan(returns).all(1), np.nan, np.nansum(returns, 1) / known)
        half = 1.96 * np.sqrt(np.nansum((returns - mean[:, None]) ** 2, 1) / np.maximum(1, known - 1) / known)
        axes.plot(steps, mean, color=COLORS[1], linewidth=2, label=f"mean of {returns.shape[1]} agents, 95 % interval")
        axes.fill_between(steps, mean - half, mean + half, color=COLORS[1], alpha=0.2)
        axes.legend(frameon=False)
    axes.set(title=id, xlabel="environment steps", ylabel="return of an episode")
    _save(figure, axes, path)


def _smooth(returns: NDArray[Any]) -> NDArray[Any]:
    """The mean over the last few reports; NaN where there are none yet."""
    windows = [returns[max(0, end - WINDOW) : end] for end in range(1, len(returns) + 1)]
    known = np.array([(~np.isnan(window)).sum(0) for window in windows])
    sums = np.array([np.nansum(window, 0) for window in windows])
    return np.where(known > 0, sums / np.maximum(known, 1), np.nan)


def evaluation(id: str, env: Any, params: Any, evaluations: Sequence[Evaluation], path: Path) -> None:
    """Of a search: ways over the plume, and success by start; of another task: the returns."""
    searches = [(each.policy, each.search) for each in evaluations if each.search is not None]
    if not isinstance(env, PlumeNav) or not searches:
        return _returns(id, evaluations, path)
    plume = _plume(env, params, evaluations[0].seed)
    figure, grid = _pairs(len(searches), (env.high[1] - env.low[1]) / (env.high[0] - env.low[0]))
    for axes, (policy, search) in zip(grid[0], searches, strict=True):
        _ways(axes, env, params, plume, policy, search)
    images = [_starts(axes, search) for axes, (_, search) in zip(grid[1], searches, strict=True)]
    label = "found, by where the search began (grey: none began there)"
    figure.colorbar(images[0], ax=grid[1], location="bottom", label=label, shrink=0.9 / len(searches))
    grid[1, 0].set_ylabel("y")
    figure.suptitle(f"{id}\nthe same {len(evaluations[0].returns)} episodes for each")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    return None


def _pairs(count: int, shape: float) -> tuple[Figure, Any]:
    """A column of two axes for each policy, all of them `SIDE` inches wide and of the arena's shape."""
    figure = Figure((SIDE * count + 1.2, 2 * SIDE * shape + 2.8), layout="compressed")
    grid = figure.subplots(2, count, squeeze=False, sharey="row")
    for axes in grid.flat:
        axes.set_box_aspect(shape)
    return figure, grid


def found_in_time(evaluations: Sequence[Evaluation], path: Path) -> None:
    """Which share had found the source after how many steps."""
    figure = Figure((7, 4), layout="constrained")
    axes = figure.subplots()
    for color, each in zip(COLORS * len(evaluations), evaluations, strict=False):
        if each.search is not None:
            times = np.sort(np.where(each.search.found, each.lengths, np.inf))
            last = int(each.lengths.max())
            share = np.searchsorted(times, np.arange(last + 1), side="right") / len(times)
            axes.plot(share, color=color, linewidth=2, label=each.policy)
    axes.set(xlabel="steps", ylabel="found the source", ylim=(0, 1.02))
    axes.legend(frameon=False)
    _save(figure, axes, path)


def _returns(id: str, evaluations: Sequence[Evaluation], path: Path) -> None:
    figure = Figure((7, 1.2 + 0.7 * len(evaluations)), layout="constrained")
    axes = figure.subplots()
    axes.boxplot([each.returns for each in evaluations], orientation="horizontal", showmeans=True)
    axes.set_yticks(range(1, len(evaluations) + 1), [each.policy for each in evaluations])
    axes.set(title=f"{id}: the same {len(evaluations[0].returns)} episodes for each", xlabel="return of an episode")
    _save(figure, axes, path)


def _plume(env: PlumeNav, params: Any, seed: int) -> NDArray[Any]:
    """The plume as the first episode begins, in colours; row 0 is the lowest y."""

    @jax.jit
    def drawn(words: Any, params: Any) -> Any:
        return picture.plume(env.scene(begin(env, words, params)[0].state, params))

    return np.asarray(drawn(seed_words(seed), params)) / 255


def _ways(axes: Axes, env: PlumeNav, params: Any, plume: NDArray[Any], policy: str, search: Search) -> None:
    extent = (env.low[0], env.high[0], env.low[1], env.high[1])
    axes.imshow(plume, origin="lower", extent=extent)
    for way, found in zip(search.paths[:, :SHOWN].swapaxes(0, 1), search.found, strict=False):
        axes.plot(*way.T, color=FOUND if found else LOST, linewidth=0.9, alpha=0.8)
        axes.plot(*way[0], "o", color="white", markersize=2.5)
    angle = np.linspace(0, 2 * np.pi, 60)
    goal = np.asarray(params.field.source) + params.goal_radius * np.stack([np.cos(angle), np.sin(angle)], -1)
    axes.plot(*goal.T, color="white", linewidth=1.2)
    rate = search.success
    axes.set_title(f"{policy}\nfound {rate.mean:.0%}  ({rate.low:.0%} to {rate.high:.0%})")
    axes.set(xlim=extent[:2], ylim=extent[2:], xticks=[], yticks=[])


def _starts(axes: Axes, search: Search) -> Any:
    """The share of searches that succeed, by where they begin."""
    x, y = search.paths[0].T
    edges = [np.linspace(side.min(), side.max() + 1e-6, BINS + 1) for side in (x, y)]
    begun = np.histogram2d(x, y, edges)[0]
    won = np.histogram2d(x[search.found], y[search.found], edges)[0]
    share = np.where(begun > 0, won / np.maximum(begun, 1), np.nan)
    image = axes.pcolormesh(*edges, share.T, vmin=0, vmax=1, cmap="viridis")
    axes.set(xlabel="x", facecolor="lightgrey")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    return image


def _save(figure: Figure, axes: Axes, path: Path) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
