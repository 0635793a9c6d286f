"""Plots on light and dark pages with Matplotlib (extra `train`), and the plot of a learning curve."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WINDOW = 5  # reports that a learning curve is smoothed over
COLORS = ("#d1495b", "#00798c", "#edae49", "#66a182", "#6a4c93", "#7d8ca3")  # legible on white and on black
DARK: Any = {
    "figure.facecolor": "#0b0e1d",
    "axes.facecolor": "#0b0e1d",
    "savefig.facecolor": "#0b0e1d",
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), "#d7dbe8"),
}


def dark_path(path: Path) -> Path:
    """The file of the dark version of a plot."""
    return path.with_name(f"{path.stem}.dark{path.suffix}")


def draw_light_and_dark(draw: Callable[[Path], None], path: Path) -> None:
    """Draw a plot for light pages, and again for dark ones."""
    draw(path)
    with rc_context(DARK):
        draw(dark_path(path))


def draw_learning_curve(id: str, history: Sequence[Any], path: Path) -> None:
    """The curve of each agent; for several, also their mean and its confidence interval."""
    figure, axes = new_plot(4.0)
    steps = np.array([row[0] for row in history])
    returns = np.ma.masked_invalid(np.array([row[1] for row in history], float))  # None becomes NaN
    returns = np.ma.stack([returns[max(0, end - WINDOW) : end].mean(0) for end in range(1, len(returns) + 1)])
    many = returns.shape[1] > 1
    axes.plot(steps, returns, color=COLORS[1], alpha=0.25 if many else 1.0, linewidth=1 if many else 2)
    if many:
        mean = returns.mean(1)
        half = 1.96 * returns.std(1, ddof=1) / np.sqrt(returns.count(1))
        axes.plot(steps, mean, color=COLORS[1], linewidth=2, label=f"mean of {returns.shape[1]} agents, 95 % interval")
        axes.fill_between(steps, mean - half, mean + half, color=COLORS[1], alpha=0.2)
        axes.legend(frameon=False)
    axes.set(title=id, xlabel="environment steps", ylabel=f"return of an episode\n(mean of {WINDOW} reports)")
    save_plot(figure, axes, path)


def new_plot(height: float) -> tuple[Figure, Axes]:
    figure = Figure((7, height), layout="constrained")
    return figure, figure.subplots()


def save_plot(figure: Figure, axes: Axes, path: Path) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
