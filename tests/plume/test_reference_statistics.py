"""Plume statistics against pompy and the released simulator of Singh et al., whose values are stored."""

import json
from typing import Any

import numpy as np
import pytest
from benchmarks.measure import RESULTS
from benchmarks.plume_statistics import CONTACT, NAMES, simulate, statistics, z_scores

STORED: dict[str, Any] = json.loads((RESULTS / "plume_statistics.json").read_text())
CASES = ("puffs", "filaments")


@pytest.mark.parametrize("case", CASES)
def test_stored_statistics_agree(case: str) -> None:
    figures = STORED[case]
    assert len(figures["points"]) == 7
    scores = np.stack([z_scores(figures["ours"], figures["theirs"], name) for name in NAMES])
    assert np.abs(scores).max() < 3.5, scores.round(1).tolist()
    assert np.sqrt((scores**2).mean(1)).max() < 2, scores.round(1).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_shorter_simulation_agrees_with_the_stored_reference(case: str) -> None:
    ours = statistics(simulate(case, seed=1, num=12), CONTACT[case])
    scores = np.stack([z_scores(ours, STORED[case]["theirs"], name) for name in NAMES])
    assert np.abs(scores).max() < 4.5, scores.round(1).tolist()


def test_errors_are_those_of_independent_realisations() -> None:
    """Of exponential numbers, whose mean and deviation are 1, and of which a fraction 1/e is above 1."""
    series = np.random.default_rng(0).exponential(size=(200, 50, 1))
    found = statistics(series, 1.0)
    assert found["mean"] == pytest.approx([1.0], abs=0.04)
    assert found["deviation"] == pytest.approx([1.0], abs=0.08)
    assert found["intermittency"] == pytest.approx([np.exp(-1)], abs=0.02)
    assert found["mean_error"] == pytest.approx([0.01], rel=0.15)  # 1/√10,000
    assert found["deviation_error"] == pytest.approx([np.sqrt(2) * 0.01], rel=0.25)
