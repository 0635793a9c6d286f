"""Learning curves: smoothed, with gaps where no episode has ended, and with the interval of several agents."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from tropism.drawing import plots

HISTORY: list[Any] = [[64, [None, None]], [128, [1.0, None]], [192, [2.0, 4.0]], [256, [3.0, 5.0]]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    return figures


def curves(figure: Figure) -> list[Any]:
    return [np.ma.filled(line.get_ydata(orig=True), np.nan) for line in figure.axes[0].lines]  # pyright: ignore


def test_a_curve_is_smoothed_over_the_reports_that_have_a_return(drawn: list[Figure], tmp_path: Path):
    plots.draw_learning_curve("Maze", [[steps, returns[:1]] for steps, returns in HISTORY], tmp_path / "curve.png")
    (curve,) = curves(drawn[0])
    np.testing.assert_array_equal(curve, [np.nan, 1.0, 1.5, 2.0])
    assert not drawn[0].axes[0].collections  # no interval of one agent


def test_several_agents_have_a_mean_and_its_interval(drawn: list[Figure], tmp_path: Path):
    plots.draw_learning_curve("Maze", HISTORY, tmp_path / "curve.png")
    first, second, mean = curves(drawn[0])
    np.testing.assert_array_equal(first, [np.nan, 1.0, 1.5, 2.0])
    np.testing.assert_array_equal(second, [np.nan, np.nan, 4.0, 4.5])
    np.testing.assert_array_equal(mean, [np.nan, 1.0, 2.75, 3.25])
    (interval,) = drawn[0].axes[0].collections
    heights = np.concatenate([path.vertices[:, 1] for path in interval.get_paths()])  # pyright: ignore
    half = 1.96 * np.std([2.0, 4.5], ddof=1) / 2**0.5
    assert (heights.min(), heights.max()) == pytest.approx((2.75 - half, 3.25 + half))
