"""Statistics of concentrations against series with known ones."""

import math

import numpy as np
import pytest

from tropism.errors import ValidationError
from tropism.plume import statistics


def test_whiffs_and_blanks_are_the_intervals_between_crossings() -> None:
    series = np.array([0, 0, 1, 1, 1, 0, 2, 0, 0, 0, 3, 3.0])
    whiffs, blanks = statistics.encounters(series, 0.5, dt=0.1)
    np.testing.assert_allclose(whiffs, [0.3, 0.1])  # the last whiff is cut off
    np.testing.assert_allclose(blanks, [0.1, 0.3])  # so is the first blank
    two = statistics.encounters(np.stack([series, series], 1), 0.5, dt=0.1)
    assert len(two.whiffs) == 4
    assert statistics.intermittency(series, 0.5) == pytest.approx(0.5)


def test_exponents_of_power_laws_are_found() -> None:
    uniform = np.random.default_rng(0).uniform(size=20_000)
    for exponent in (1.5, 2.5):
        durations = 0.2 * (1 - uniform) ** (-1 / (exponent - 1))
        found, error = statistics.power_law(durations, 0.2)
        assert found == pytest.approx(exponent, abs=4 * error)
        assert error < 0.02


def test_a_distribution_integrates_to_the_fraction_of_positive_values() -> None:
    values = np.exp(np.random.default_rng(0).normal(size=50_000)) * (np.arange(50_000) % 4 > 0)
    edges, density = statistics.distribution(values, 60)
    assert (density * np.diff(edges)).sum() == pytest.approx(0.75, abs=1e-3)
    middle = np.searchsorted(edges, 1.0) - 1
    assert density[middle] == pytest.approx(0.75 / math.sqrt(2 * math.pi), rel=0.1)


@pytest.mark.parametrize("num", [1000, 1001])
def test_a_spectrum_integrates_to_the_variance_and_shows_a_tone(num: int) -> None:
    dt = 0.02
    time = dt * np.arange(num)
    series = 3 + 2 * np.sin(2 * math.pi * 5 * time) + np.random.default_rng(0).normal(0, 0.1, num)
    frequencies, power = statistics.spectrum(series, dt)
    assert power.sum() * (frequencies[1] - frequencies[0]) == pytest.approx(series.var(), rel=1e-6)
    assert frequencies[power.argmax()] == pytest.approx(5.0, abs=0.06)


@pytest.mark.parametrize("series", [[1.0], [math.nan, 1.0], 3.0])
def test_invalid_series_are_rejected(series: object) -> None:
    with pytest.raises(ValidationError, match="series"):
        statistics.intermittency(series, 1.0)
