"""The mean search times of the literature, in a short form; `benchmarks/tracking.py` has the complete table."""

import math

import pytest
from benchmarks.tracking import REFERENCE, chi_square_p, measure

SHORT = [case for case in REFERENCE if case[0] in ("SourceTracking1D-v0", "SourceTracking19x19-v0")]


@pytest.mark.slow
@pytest.mark.parametrize("case", SHORT, ids="/".join)
def test_mean_search_times_are_those_of_the_reference(case: tuple[str, str]):
    assert abs(measure(*case, runs=1500, seed=0)["z"]) < 3


@pytest.mark.full
def test_all_mean_search_times_are_those_of_the_reference():
    rows = [measure(*case, runs=10_000, seed=0) for case in REFERENCE]
    assert all(abs(row["z"]) < 3 for row in rows)
    assert chi_square_p(rows) > 0.01


def test_chi_square_of_two_rows_is_an_exponential():
    assert chi_square_p([{"z": 1.0}, {"z": 2.0}]) == pytest.approx(math.exp(-2.5))
