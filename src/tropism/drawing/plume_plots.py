"""A plot of the statistics of a plume, beside the curves that theory predicts."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tropism.drawing.plots import COLORS

NUM_BINS = 20
WHIFF_EXPONENT = -1.5  # of durations (Celani et al. 2014)
SPECTRUM_EXPONENT = -5 / 3  # of the inertial-convective range (Obukhov 1949, Corrsin 1951)
THEORY: Any = {"color": "#7d8ca3", "linestyle": "--", "linewidth": 1.4}


def draw_plume_statistics(title: str, measured: Any, path: Path) -> None:
    """`measured` are `PlumeStatistics`."""
    figure = Figure((12, 7), layout="constrained")
    (along, across, pdf), (whiffs, blanks, spectrum) = figure.subplots(2, 3)
    for axes, profile, label in (
        (along, measured.along, "downwind of the source"),
        (across, measured.across, "across the wind"),
    ):
        axes.plot(profile.position, profile.mean, color=COLORS[1], label="mean")
        axes.plot(profile.position, profile.deviation, color=COLORS[2], label="deviation")
        axes.plot([], [], color=COLORS[0], label="intermittency (right)")  # for the legend
        axes.set(xlabel=label, ylabel="concentration")
        twin = axes.twinx()
        twin.plot(profile.position, profile.intermittency, color=COLORS[0])
        twin.set(ylim=(0, 1.02))
    if measured.across.mean.sum() > 0:
        _draw_gaussian(across, measured.across)
    if measured.density is not None:
        edges, density = measured.density
        pdf.loglog(np.sqrt(edges[1:] * edges[:-1]), np.where(density > 0, density, np.nan), color=COLORS[1])
    pdf.set(xlabel="concentration", ylabel="probability density")
    _draw_durations(whiffs, measured.whiffs, "whiff (s)")
    _draw_durations(blanks, measured.blanks, "blank (s)")
    frequency, power = (each[1:] for each in measured.spectrum)
    if power.any():
        spectrum.loglog(frequency, power, color=COLORS[1], linewidth=0.8)
        _draw_slope(spectrum, frequency, power, SPECTRUM_EXPONENT, "slope −5/3")
    spectrum.set(xlabel="frequency (Hz)", ylabel="power")
    for axes in figure.axes:
        axes.grid(alpha=0.25)
        if axes.get_legend_handles_labels()[0] and axes.get_legend() is None:
            axes.legend(frameon=False, loc="upper right", fontsize=8)
    figure.suptitle(f"{title}: {measured.distance:.3g} downwind, whiffs from {measured.threshold:.3g}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _draw_gaussian(axes: Axes, profile: Any) -> None:
    centre = profile.position @ profile.mean / profile.mean.sum()
    y = np.linspace(profile.position[0], profile.position[-1], 200)
    shape = np.exp(-((y - centre) ** 2) / (2 * profile.width**2))
    axes.plot(y, profile.mean.max() * shape, label="Gaussian of this width", **THEORY)


def _draw_durations(axes: Axes, durations: Any, label: str) -> None:
    axes.set(xlabel=label, ylabel="probability density")
    seconds = durations.seconds
    if len(seconds) < 2 or seconds.min() == seconds.max():
        return
    edges = np.geomspace(seconds.min() * 0.999, seconds.max() * 1.001, NUM_BINS + 1)
    density = np.histogram(seconds, edges, density=True)[0]
    middle = np.sqrt(edges[1:] * edges[:-1])
    fitted = "" if durations.exponent is None else f", exponent −{durations.exponent:.2f} ± {durations.error:.2f}"
    axes.loglog(middle, np.where(density > 0, density, np.nan), "o", color=COLORS[1], label=f"measured{fitted}")
    _draw_slope(axes, middle, density, WHIFF_EXPONENT, "t^(−3/2), Celani et al. 2014")


def _draw_slope(axes: Axes, x: Any, y: Any, exponent: float, label: str) -> None:
    """A power law through the logarithmic mean of the points."""
    good = y > 0
    height = np.exp(np.mean(np.log(y[good]) - exponent * np.log(x[good])))
    axes.loglog(x, height * x**exponent, label=label, **THEORY)
