"""The optimum on a line: exact on short lines, and the published one on the line of 33 cells."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.plume.tracking.line_solution import LineSolution
from tests.plume.tracking.slow_search import SlowSearch, isotropic_mean

from tropism import make
from tropism.plume.tracking import HitTable, IsotropicHits
from tropism.plume.tracking.belief import first_hit_weights


def solution(size: int, num_hits: int) -> LineSolution:
    model = IsotropicHits(2.0, 2.0)
    table = HitTable.of(model, (size,), num_hits, (size // 2,))
    return LineSolution(table, np.asarray(first_hit_weights(model, table)))


def bounds(slow: SlowSearch, belief: NDArray[Any], at: int, depth: int) -> tuple[float, float]:
    """Bounds of the optimum by expanding all actions and hits; at the end, the distance and the better sweep."""
    size, cells = slow.shape[0], np.arange(slow.shape[0])
    if depth == 0:
        left = np.where(cells < at, at - cells, at + cells)
        right = np.where(cells > at, cells - at, 2 * (size - 1) - at - cells)
        return float(belief @ np.abs(cells - at)), float(min(belief @ left, belief @ right))
    best = (math.inf, math.inf)
    for (after,) in slow.neighbours((at,)).values():
        total = np.ones(2)
        for hits in range(slow.num_hits):
            joint = slow.joint(belief, (after,), hits)
            if joint.sum() > 1e-12:
                total += joint.sum() * np.array(bounds(slow, joint / joint.sum(), after, depth - 1))
        best = (min(best[0], total[0]), min(best[1], total[1]))
    return best


def test_on_three_cells_the_optimum_is_two_steps():
    """One step, or three if the source is on the other side."""
    assert solution(3, 2).improve(10, 3) == pytest.approx(2)


def test_on_five_cells_the_optimum_is_between_exhaustive_bounds():
    slow = SlowSearch(isotropic_mean(2.0, 2.0), (5,), 2)
    first = slow.update(np.full(5, 0.2), (2,), 1)
    low, high = bounds(slow, first, 2, 5)
    found = solution(5, 2).improve(60, 8)
    assert low - 1e-4 <= found <= high + 1e-4
    assert high - low < 0.2


@pytest.mark.slow
def test_the_optimum_on_33_cells_is_the_published_one():
    env, params = make("SourceTracking1D-v0")
    table = env.table(params)
    line = LineSolution(table, np.asarray(first_hit_weights(params.hits, table)))
    values = [line.improve(100, 8) for _ in range(5)]
    assert values[-1] == pytest.approx(7.15, abs=0.05)
