"""Predefined searches: PlumeNav with plumes, motions and sensors from the literature."""

import math
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from tropism.envs.plume.nav import PlumeNav
from tropism.envs.plume.presets import plume_preset, puffs_preset, singh_preset
from tropism.errors import ValidationError
from tropism.plume import checks
from tropism.plume.fields import (
    Filaments,
    Meander,
    PlumeRecording,
    Puffs,
    Turbulence,
    births,
    load_data_set,
    synthetic_recording,
)
from tropism.plume.motion import Compass, Continuous
from tropism.plume.receptors import Saturating, Threshold
from tropism.plume.rewards import Approach, PlumeTracking, Singh, SparseGoal, Sum
from tropism.plume.sensors import Concat, Concentration, FlyerWind, Odour, WindSense
from tropism.plume.start import Start, StartInPlume
from tropism.plume.wind import Constant, Switching, SwitchOnce, Wandering

WINDS = {
    "constant": Constant((0.5, 0.0)),
    "switch_once": SwitchOnce(),
    "switch_many": Switching(),
    "wandering": Wandering(),
}
PUFF_RATE = 100.0  # per second


class Difficulty(NamedTuple):
    """A plume of puffs, and where in it a search starts."""

    regime: str = "constant"
    keep: float = 1.0
    start: Start = Start(low=(4.0, -0.6), high=(8.0, 0.6))
    low: tuple[float, float] = (-2.0, -2.5)
    high: tuple[float, float] = (10.0, 2.5)


DIFFICULTIES = {
    "standard": Difficulty(),
    "sparse": Difficulty(keep=0.05),
    "far": Difficulty(keep=0.3, start=Start(low=(12.0, -2.5), high=(15.0, 2.5)), low=(-2.0, -4.0), high=(16.0, 4.0)),
    "gusty": Difficulty(regime="wandering", keep=0.1),
}


@plume_preset
def meander(trail: int = 0) -> PlumeNav:
    """Find the source of a plume with a meandering centre line, on a grid, in 150 steps.

    The sensor saturates, as receptors do, which resolves low concentrations.

    Reward: 1 at the source, and 0.005 for each length unit of approach.

    Ends: terminated within `goal_radius` of the source; truncated after `max_steps` steps.
    """
    return PlumeNav(
        field=Meander(source=(16.0, 64.0)),
        sensor=Concat((Saturating(Concentration(), half=0.001), WindSense())),
        reward=Sum((SparseGoal(), Approach(scale=0.005))),
        start=Start(low=(40.0, 40.0), high=(80.0, 88.0)),
        goal_radius=5.0,
        max_steps=150,
        trail=trail,
    )


@puffs_preset
def puffs(
    regime: str | None = None,
    keep: float | None = None,
    difficulty: str = "standard",
    shared: bool = False,
    realisation: int = 0,
    trail: int = 0,
) -> PlumeNav:
    """Fly to the source of a plume of puffs by odour and egocentric wind, 300 steps at 25 Hz (after Singh et al. 2023).

    `PlumeNavSingh-v0` is the published task. Here the flyer is not carried by the wind, turns up to 45° per step and
    the odour sensor saturates.

    `difficulty` is "standard", "sparse" (few puffs), "far" (starts farther from the source and the plume) or "gusty" (a
    wandering wind). `regime` and `keep` replace its wind, "constant", "switch_once", "switch_many" or "wandering", and
    the fraction of puffs that is released.

    Reward: after Singh et al.: progress towards the source, a penalty for each step, a bonus at the source.

    Ends: terminated within `goal_radius` of the source or outside the arena; truncated after `max_steps` steps.
    """
    if difficulty not in DIFFICULTIES:
        raise ValidationError("difficulty", difficulty, f"one of {', '.join(DIFFICULTIES)}")
    task = DIFFICULTIES[difficulty]
    low, high = task.low, task.high
    regime, keep = task.regime if regime is None else regime, task.keep if keep is None else keep
    return PlumeNav(
        field=_puffs(regime, keep, low, high),
        sensor=Concat((WindSense(egocentric=True, apparent=True, dt=0.04), Saturating(Concentration(), half=0.05))),
        motion=Continuous(boundary="absorb"),
        reward=Singh(),
        start=task.start,
        grid_size=(round(20 * (high[0] - low[0])) + 1, round(20 * (high[1] - low[1])) + 1),
        low=low,
        high=high,
        goal_radius=0.2,
        max_steps=300,
        shared=shared,
        realisation=realisation,
        trail=trail,
    )


def _puffs(regime: str, keep: float, low: Any, high: Any) -> Puffs:
    """Puffs that reach across the arena between `low` and `high`."""
    if regime not in WINDS:
        raise ValidationError("regime", regime, f"one of {', '.join(WINDS)}")
    checks.require_fraction(keep=keep)
    seconds = births.crossing_time((0.0, 0.0), WINDS[regime].mean().tolist(), low, high)
    max_puffs = births.capacity(PUFF_RATE * keep, seconds)
    return Puffs(flow=WINDS[regime], rate=PUFF_RATE, keep=keep, max_puffs=max_puffs)


@singh_preset
def singh(
    regime: str = "constant",
    keep: float = 1.0,
    square: bool = True,
    shared: bool = False,
    realisation: int = 0,
    trail: int = 0,
) -> PlumeNav:
    """Fly to the source of a plume of puffs in 299 steps at 25 Hz, as in the released code of Singh et al. 2023.

    The wind carries the flyer, which turns up to 22.5° per step and starts among the puffs. `regime` is the wind:
    "constant", "switch_once", "switch_many" or "wandering"; `keep` is the fraction of puffs that is released; puffs are
    squares as in the released code, or circles.

    Reward: 101 at the source, −1/30 for each step, five times that in addition off the odour, 5 per metre of approach
    on the odour, −5 per metre of retreat, and a penalty for straying.

    Ends: terminated within `goal_radius` of the source or 2 m from the nearest puff; truncated after `max_steps` steps.
    """
    field = _puffs(regime, keep, (-2.0, -10.0), (10.0, 10.0))
    return PlumeNav(
        field=replace(field, low=(-2.0, -10.0), high=(10.0, 10.0), square=square),
        sensor=Concat((FlyerWind(dt=0.04), Threshold(Concentration(), floor=1e-4))),
        motion=Continuous(boundary="absorb", turn_rate=3.125 * math.pi, drift=True),
        reward=PlumeTracking(),
        start=StartInPlume(),
        grid_size=(151, 121),
        low=(-2.5, -6.0),
        high=(12.5, 6.0),
        goal_radius=0.2,
        max_steps=299,
        max_stray=2.0,
        shared=shared,
        realisation=realisation,
        trail=trail,
    )


@plume_preset
def filaments(shared: bool = False, realisation: int = 0, trail: int = 0) -> PlumeNav:
    """Find the source of odour filaments in a turbulent wind, over 100 metres (Farrell et al. 2002).

    Puffs scatter in three dimensions. The agent moves at 2 m/s, as hawkmoths do, in a wind of 1 m/s, two steps per
    second, for at most five minutes.

    Reward: 1 at the source, 0 otherwise.

    Ends: terminated within `goal_radius` of the source; truncated after `max_steps` steps.
    """
    return PlumeNav(
        field=Filaments(source=(5.0, 0.0), air=Turbulence(), dt=0.5),
        sensor=Concat((Odour(threshold=1e3), WindSense())),
        motion=Compass(step_length=1.0, on_grid=False),
        reward=SparseGoal(),
        start=Start(low=(40.0, -25.0), high=(90.0, 25.0)),
        grid_size=(201, 201),
        low=(0.0, -50.0),
        high=(100.0, 50.0),
        goal_radius=3.0,
        max_steps=600,
        shared=shared,
        realisation=realisation,
        trail=trail,
    )


def movie(
    recording: Any = None,
    pixel_size: Any = None,
    frame_rate: Any = None,
    source_pixel: Any = None,
    wind: Any = None,
    velocity: Any = None,
    dataset: str | None = None,
    axes: str | None = None,
    frames: Any = None,
    clip: bool | None = None,
    normalise: Any = None,
    data_set: str | None = None,
    trail: int = 0,
) -> PlumeNav:
    """Find the source in a recorded plume, a PlumeRecording or a file; by default a small synthetic recording.

    `pixel_size`, `frame_rate` and `source_pixel` are needed for a file that does not contain them; these and the
    other arguments are those of `PlumeRecording.load`. `data_set` is the name of a public data set that the file
    belongs to. `wind` is the velocity at the agent, (x, y), if there is no film of it.

    Reward: 1 at the source, 0 otherwise.

    Ends: terminated within `goal_radius` of the source; truncated after `max_steps` steps.
    """
    about = {"pixel_size": pixel_size, "frame_rate": frame_rate, "source_pixel": source_pixel, "velocity": velocity}
    about |= {"dataset": dataset, "axes": axes, "frames": frames, "clip": clip, "normalise": normalise}
    recording = _load_recording(recording, data_set, {key: value for key, value in about.items() if value is not None})
    if wind is not None:
        recording = replace(recording, wind=tuple(wind), velocity=None)
    size = recording.pixel_size
    margin, on_grid = 3, size == 1.0
    rows, columns = (
        _extent(length, place, margin)
        for length, place in zip(recording.frames.shape[1:], recording.source_pixel, strict=True)
    )
    picture = (size * (recording.frames.shape[2] - 1), size * (recording.frames.shape[1] - 1))
    return PlumeNav(
        field=recording,
        sensor=Concat((Concentration(), WindSense())),
        motion=Compass(step_length=size, on_grid=on_grid),
        start=Start(low=(picture[0] / 2, 0.0), high=picture),
        grid_size=(columns[1] - columns[0] + 1, rows[1] - rows[0] + 1),
        low=(size * columns[0], size * rows[0]),
        high=(size * columns[1], size * rows[1]),
        goal_radius=margin * size,
        max_steps=500,
        trail=trail,
    )


def _extent(length: int, source: float | int, margin: int) -> tuple[int, int]:
    """The first and last pixel of the arena in one direction: those of the picture, and the goal if it is outside."""
    low = 0 if source >= 0 else math.floor(source) - margin
    return low, length - 1 if source <= length - 1 else math.ceil(source) + margin


def _load_recording(recording: Any, data_set: str | None, about: dict[str, Any]) -> PlumeRecording:
    if isinstance(recording, str | Path):
        load = PlumeRecording.load if data_set is None else partial(load_data_set, data_set)
        return load(recording, **about)
    if recording is not None and not isinstance(recording, PlumeRecording):
        raise ValidationError("recording", recording, "a PlumeRecording or the path of a file of frames")
    for name, value in (about | ({} if data_set is None else {"data_set": data_set})).items():
        raise ValidationError(name, value, "None: it is only for files")
    return _synthetic_recording() if recording is None else recording


@cache
def _synthetic_recording() -> PlumeRecording:
    """Cached, because compiling it takes a second."""
    return synthetic_recording()
