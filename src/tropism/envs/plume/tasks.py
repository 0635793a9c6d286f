"""Predefined searches: PlumeNav with plumes, motions and sensors from the literature."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tropism.envs.plume.nav import PlumeNav
from tropism.errors import ValidationError
from tropism.plume import checks
from tropism.plume.fields import Filaments, Meander, PlumeRecording, Puffs, Turbulence, synthetic_recording
from tropism.plume.motion import Compass, Continuous
from tropism.plume.receptors import Saturating
from tropism.plume.rewards import Approach, Singh, SparseGoal, Sum
from tropism.plume.sensors import Concat, Concentration, Odour, WindSense
from tropism.plume.start import Start
from tropism.plume.wind import Constant, Switching

WINDS = {
    "constant": Constant((0.5, 0.0)),
    "switch_once": Switching.once(),
    "switch_many": Switching.many(),
}


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


def puffs(regime: str = "constant", keep: float = 1.0, shared: bool = False, trail: int = 0) -> PlumeNav:
    """Fly to the source of a plume of puffs by odour and egocentric wind, 300 steps at 25 Hz (Singh et al. 2023).

    `regime` is the wind: "constant", "switch_once" or "switch_many"; `keep` is the fraction of puffs that is released.

    Reward: as in Singh et al.: progress towards the source, a penalty for each step, a bonus at the source.

    Ends: terminated within `goal_radius` of the source or outside the arena; truncated after `max_steps` steps.
    """
    if regime not in WINDS:
        raise ValidationError("regime", regime, f"one of {', '.join(WINDS)}")
    checks.require_fraction(keep=keep)
    return PlumeNav(
        field=Puffs(flow=WINDS[regime], keep=keep, max_puffs=_max_puffs(keep)),
        sensor=Concat((WindSense(egocentric=True, apparent=True, dt=0.04), Saturating(Concentration(), half=0.05))),
        motion=Continuous(boundary="absorb"),
        reward=Singh(),
        start=Start(low=(4.0, -0.6), high=(8.0, 0.6)),
        grid_size=(241, 101),
        low=(-2.0, -2.5),
        high=(10.0, 2.5),
        goal_radius=0.2,
        max_steps=300,
        shared=shared,
        trail=trail,
    )


def _max_puffs(keep: float) -> int:
    """An upper bound of the puffs on the 10 m to the end of the arena; 100 · `keep` are released per second."""
    mean = 2000 * keep
    return math.ceil(mean + 4.5 * mean**0.5) + 1


def filaments(shared: bool = False, trail: int = 0) -> PlumeNav:
    """Find the source of odour filaments in a turbulent wind, over 100 metres (Farrell et al. 2002).

    Reward: 1 at the source, 0 otherwise.

    Ends: terminated within `goal_radius` of the source; truncated after `max_steps` steps.
    """
    return PlumeNav(
        field=Filaments(source=(5.0, 0.0), air=Turbulence()),
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
        trail=trail,
    )


def movie(
    recording: Any = None,
    pixel_size: Any = None,
    frame_rate: Any = None,
    source_pixel: Any = None,
    wind: Any = None,
    trail: int = 0,
) -> PlumeNav:
    """Find the source in a recorded plume, a PlumeRecording or a file; by default a small synthetic recording.

    `pixel_size`, `frame_rate` and `source_pixel` are needed for a file that does not contain them. `wind` is the
    velocity at the agent, (x, y); frames do not contain it.

    Reward: 1 at the source, 0 otherwise.

    Ends: terminated within `goal_radius` of the source; truncated after `max_steps` steps.
    """
    recording = _load_recording(recording, pixel_size=pixel_size, frame_rate=frame_rate, source_pixel=source_pixel)
    if wind is not None:
        recording = replace(recording, wind=wind)
    height, width = recording.frames.shape[1:]
    size = recording.pixel_size
    high = (size * (width - 1), size * (height - 1))
    on_grid = size == 1.0
    return PlumeNav(
        field=recording,
        sensor=Concat((Concentration(), WindSense())),
        motion=Compass(step_length=size, on_grid=on_grid),
        start=Start(low=(high[0] / 2, 0.0), high=high),
        grid_size=(width, height),
        low=(0.0, 0.0),
        high=high,
        goal_radius=3.0 * size,
        max_steps=500,
        trail=trail,
    )


def _load_recording(recording: Any, **numbers: Any) -> PlumeRecording:
    if isinstance(recording, str | Path):
        return PlumeRecording.load(recording, **numbers)
    if recording is not None and not isinstance(recording, PlumeRecording):
        raise ValidationError("recording", recording, "a PlumeRecording or the path of a file of frames")
    for name, value in numbers.items():
        if value is not None:
            raise ValidationError(name, value, "None: it is only for files")
    return _synthetic_recording() if recording is None else recording


@cache
def _synthetic_recording() -> PlumeRecording:
    """Cached, because compiling it takes a second."""
    return synthetic_recording()
