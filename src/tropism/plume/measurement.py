"""Statistics of any field or recording, at points along and across its mean wind."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpy.typing import NDArray

from tropism.errors import ValidationError
from tropism.plume import checks, statistics
from tropism.plume.fields import Field, Filaments, Gaussian, Movie, PlumeRecording, Puffs
from tropism.plume.fields.field import simulate

NUM_STEPS = 2000
NUM_REALISATIONS = 8
NUM_POINTS = 25  # of a profile
THRESHOLD = 0.1  # of the mean concentration, by default
STILL = 1e-9  # length units/s; without a wind, downwind is +x


class Profile(NamedTuple):
    """Statistics at points of a line."""

    position: NDArray[Any]  # length units from the source, or from the centre line
    mean: NDArray[Any]
    deviation: NDArray[Any]
    intermittency: NDArray[Any]  # the fraction of time with at least the threshold

    @property
    def width(self) -> float:
        """The standard deviation of the position, weighted by the mean concentration."""
        weight = self.mean / self.mean.sum()
        return float(np.sqrt(weight @ self.position**2 - (weight @ self.position) ** 2))


class Durations(NamedTuple):
    """Durations of whiffs or blanks, in seconds, and the exponent of their power law; None for fewer than two."""

    seconds: NDArray[Any]
    exponent: float | None
    error: float | None


class PlumeStatistics(NamedTuple):
    """`across` and all series in time are measured on the centre line at `distance` from the source."""

    dt: float  # s
    threshold: float  # concentration of a whiff
    wind: tuple[float, float]  # mean, length units/s
    distance: float  # length units
    mean: float  # concentration
    deviation: float
    intermittency: float  # the fraction of time with at least the threshold
    along: Profile
    across: Profile
    whiffs: Durations
    blanks: Durations
    density: tuple[NDArray[Any], NDArray[Any]] | None  # edges of concentration, and probability density
    spectrum: tuple[NDArray[Any], NDArray[Any]]  # Hz, and power

    def to_json(self) -> dict[str, Any]:
        return _plain(self)


def measure(
    field: Field | PlumeRecording,
    low: Any = None,
    high: Any = None,
    *,
    distance: float | None = None,
    threshold: float | None = None,
    num_steps: int = NUM_STEPS,
    num_realisations: int = NUM_REALISATIONS,
    seed: int = 0,
) -> PlumeStatistics:
    """The statistics of a field between the corners `low` and `high`, or of all frames of a recording.

    `distance` is downwind of the source, by default half of the way to the edge; `threshold` is the concentration of
    a whiff, by default a tenth of the mean there.
    """
    if isinstance(field, PlumeRecording):
        recording, field = field, field.field(dt=1 / field.frame_rate, end="clamp", shuffle=False)
        low, high = (0.0, 0.0), tuple(recording.pixel_size * (side - 1) for side in recording.frames.shape[:0:-1])
        num_steps, num_realisations = len(recording.frames), 1
    checks.require_point(low=low, high=high)
    checks.require_count(num_steps=num_steps, num_realisations=num_realisations)
    source, wind = np.asarray([float(side) for side in field.source]), _mean_wind(field, seed, num_steps)
    speed = np.hypot(*wind)
    downwind = wind / speed if speed > STILL else np.array([1.0, 0.0])
    left = np.array([-downwind[1], downwind[0]])
    length = _reach(source, downwind, low, high)
    distance = length / 2 if distance is None else float(distance)
    if not 0 < distance <= length:
        raise ValidationError("distance", distance, f"above 0 and at most {length:.4g}, the way to the edge")
    along = np.linspace(0, length, NUM_POINTS)
    across = np.linspace(-_reach(source, -left, low, high), _reach(source, left, low, high), NUM_POINTS)
    here = source + distance * downwind
    lines = (source + along[:, None] * downwind, here + across[:, None] * left, here[None])
    keys = random.split(random.key(seed), num_realisations)
    series = np.asarray(_simulate(field, keys, jnp.asarray(np.concatenate(lines), float), num_steps), float)
    on_line, beside, probe = np.split(series, [NUM_POINTS, 2 * NUM_POINTS], axis=-1)
    threshold = THRESHOLD * float(probe.mean()) if threshold is None else float(threshold)
    if threshold <= 0:
        raise ValidationError("distance", distance, "a distance that the plume reaches, or a positive threshold")
    dt = 1.0 if field.step_duration is None else float(field.step_duration)
    probe = probe[..., 0].T  # (time, realisation)
    whiffs, blanks = statistics.encounters(probe, threshold, dt)
    varied = len(np.unique(probe[probe > 0])) > 1
    return PlumeStatistics(
        dt,
        threshold,
        (float(wind[0]), float(wind[1])),
        distance,
        float(probe.mean()),
        float(probe.std()),
        float(statistics.intermittency(probe.ravel(), threshold)),
        _profile(along, on_line, threshold),
        _profile(across, beside, threshold),
        _durations(whiffs, dt),
        _durations(blanks, dt),
        statistics.distribution(probe) if varied else None,
        statistics.spectrum(probe, dt),
    )


@eqx.filter_jit
def _simulate(field: Field, keys: Any, points: Any, num_steps: int) -> Any:
    """The concentrations (realisation, time, point)."""

    def simulate_one(key: Any) -> Any:
        return simulate(field, random.split(key), num_steps, lambda state: field.concentration(state, points))

    return jax.vmap(simulate_one)(keys)


def _mean_wind(field: Any, seed: int, num_steps: int) -> NDArray[Any]:
    """The mean of the wind model if it is the only wind; otherwise the mean over time at the source."""
    match field:
        case Gaussian(flow=flow) | Puffs(flow=flow) | Movie(u=None, flow=flow):
            return np.asarray(flow.mean(), float)
        case Filaments(air=air):
            return np.asarray(air.mean, float)
        case _:
            return np.asarray(_wind_at_source(field, random.key(seed), num_steps), float)


@eqx.filter_jit
def _wind_at_source(field: Field, key: Any, num_steps: int) -> Any:
    source = jnp.stack([jnp.asarray(side, float) for side in field.source])
    return simulate(field, (key, key), num_steps, lambda state: field.wind(state, source)).mean(0)


def _reach(point: Any, direction: Any, low: Any, high: Any) -> float:
    """The distance from a point to the edge of a rectangle in a direction; 0 if the edge is behind it."""
    edges = np.where(direction > 0, np.asarray(high, float), np.asarray(low, float))
    moving = np.abs(direction) > STILL
    return max(0.0, float(((edges - point)[moving] / direction[moving]).min()))


def _profile(position: NDArray[Any], series: NDArray[Any], threshold: float) -> Profile:
    each = series.reshape(-1, series.shape[-1])
    return Profile(position, each.mean(0), each.std(0), statistics.intermittency(each, threshold))


def _durations(seconds: NDArray[Any], dt: float) -> Durations:
    """Fit durations of two and more steps; the bound is 1.5, as they are whole steps (Clauset et al. 2009)."""
    if (seconds >= 1.5 * dt).sum() < 2:
        return Durations(seconds, None, None)
    return Durations(seconds, *statistics.power_law(seconds, 1.5 * dt))


def _plain(value: Any) -> Any:
    match value:
        case Profile() | Durations() | PlumeStatistics():
            return {name: _plain(each) for name, each in value._asdict().items()}
        case tuple():
            return [_plain(each) for each in value]
        case np.ndarray():
            return value.tolist()
        case _:
            return value
