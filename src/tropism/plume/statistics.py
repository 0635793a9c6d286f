"""Statistics of concentrations over time: intermittency, whiffs and blanks, distribution, spectrum."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tropism.errors import ValidationError
from tropism.plume import checks


class Encounters(NamedTuple):
    """Whiffs, in which the concentration is at least a threshold, and the blanks between them, in seconds.

    The first and the last interval of a series are cut off by its ends and left out.
    """

    whiffs: NDArray[Any]
    blanks: NDArray[Any]


def intermittency(series: Any, threshold: float) -> Any:
    """The fraction of time, along the first axis, in which the concentration is at least `threshold`."""
    return (_check(series) >= threshold).mean(0)


def encounters(series: Any, threshold: float, dt: float) -> Encounters:
    """The durations of whiffs and blanks in one series, or in every column of several."""
    values = _check(series)
    checks.require_positive(dt=dt)
    whiffs: list[NDArray[Any]] = []
    blanks: list[NDArray[Any]] = []
    for column in values.reshape(len(values), -1).T:
        above = column >= threshold
        changes = np.flatnonzero(np.diff(above)) + 1
        durations = np.diff(changes) * dt
        is_whiff = above[changes[:-1]]
        whiffs.append(durations[is_whiff])
        blanks.append(durations[~is_whiff])
    return Encounters(np.concatenate(whiffs), np.concatenate(blanks))


def power_law(durations: Any, shortest: float) -> tuple[float, float]:
    """The exponent of p(t) ∝ t^−α for durations of at least `shortest`, by maximum likelihood, and its error.

    Whiffs and blanks of turbulent plumes have α = 3/2 up to a cut-off (Celani et al. 2014,
    doi:10.1103/PhysRevX.4.041015).
    """
    checks.require_positive(shortest=shortest)
    values = np.asarray(durations, float)
    values = values[values >= shortest]
    if len(values) < 2:
        raise ValidationError("durations", len(values), f"at least two durations of {shortest} or more")
    exponent = 1 + len(values) / np.log(values / shortest).sum()
    return float(exponent), float((exponent - 1) / len(values) ** 0.5)


def distribution(series: Any, num_bins: int = 40) -> tuple[NDArray[Any], NDArray[Any]]:
    """The probability density of positive concentrations in logarithmic bins: `(edges, density)`."""
    checks.require_count(num_bins=num_bins)
    values = _check(series).ravel()
    positive = values[values > 0]
    if not positive.size or positive.min() == positive.max():
        raise ValidationError("series", f"{positive.size} positive values", "several different positive values")
    edges = np.geomspace(positive.min(), positive.max(), num_bins + 1)
    counts, _ = np.histogram(positive, edges)
    return edges, counts / values.size / np.diff(edges)


def spectrum(series: Any, dt: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """The one-sided power spectrum along the first axis, averaged over the others: `(frequencies, power)`.

    Its integral over the frequencies is the variance.
    """
    checks.require_positive(dt=dt)
    values = _check(series)
    values = (values - values.mean(0)).reshape(len(values), -1)
    power = np.abs(np.fft.rfft(values, axis=0)) ** 2 * dt / len(values)
    power[1 : (len(values) + 1) // 2] *= 2
    return np.fft.rfftfreq(len(values), dt), power.mean(1)


def _check(series: Any) -> NDArray[Any]:
    values = np.asarray(series, float)
    if values.ndim == 0 or len(values) < 2 or not np.isfinite(values).all():
        raise ValidationError("series", np.shape(series), "at least two finite concentrations along the first axis")
    return values
