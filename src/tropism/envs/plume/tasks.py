"""Ready-made searches: PlumeNav with the plumes, bodies and noses of the literature."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tropism.envs.plume.nav import PlumeNav
from tropism.errors import ValidationError
from tropism.plume import checks
from tropism.plume.fields import Filaments, Meander, Puffs, Recording, Turbulence, synthetic
from tropism.plume.motion import Compass, Continuous
from tropism.plume.receptors import Saturating
from tropism.plume.rewards import Approach, Singh, SparseGoal, Sum
from tropism.plume.sensors import Concentration, Odour, Together, WindSense
from tropism.plume.start import Start
from tropism.plume.wind import Constant, Switching

WINDS = {
    "constant": Constant((0.5, 0.0)),
    "switch_once": Switching.once(),
    "switch_many": Switching.many(),
}


def meander(trail: int = 0) -> PlumeNav:
    """Find the source of a plume whose centre line wanders with the wind, on a grid, in 150 steps.

    The nose saturates, as receptors do, so that it tells faint smells apart.

    Reward: 1 at the source, and 0.005 for each unit of distance gained in a step.

    Ends: terminated within `goal_radius` of the source; truncated after `max_steps` steps.
    """
    return PlumeNav(
        field=Meander(source=(16.0, 64.0)),
        sensor=Together((Saturating(Concentration(), half=0.001), WindSense())),
        reward=Sum((SparseGoal(), Approach(scale=0.005))),
        start=Start(low=(40.0, 40.0), high=(80.0, 88.0)),
        goal_radius=5.0,
        max_steps=150,
        trail=trail,
    )


def puffs(regime: str = "constant", keep: float = 1.0, shared: bool = False, trail: int = 0) -> PlumeNav:
    """Fly to the source of a puffy plume by smell and egocentric wind, 300 steps at 25 Hz (Singh et al. 2023).

    `regime` is the wind: "constant", "switch_once" or "switch_many"; `keep` is the fraction of puffs that is kept.

    Reward: as in Singh et al.: progress towards the source, a penalty for each step, a bonus at the source.

    Ends: terminated within `goal_radius` of the source or outside the arena; truncated after `max_steps` steps.
    """
    if regime not in WINDS:
        raise ValidationError("regime", regime, f"one of {', '.join(WINDS)}")
    checks.fraction(keep=keep)
    return PlumeNav(
        field=Puffs(flow=WINDS[regime], keep=keep, max_puffs=_crowd(keep)),
        sensor=Together((WindSense(egocentric=True, apparent=True, dt=0.04), Saturating(Concentration(), half=0.05))),
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


def _crowd(keep: float) -> int:
    """Puffs on the 10 m to the end of the arena, of which 100 · `keep` are born a second; whatever the draw."""
    mean = 2000 * keep
    return math.ceil(mean + 4.5 * mean**0.5) + 1


def filaments(shared: bool = False, trail: int = 0) -> PlumeNav:
    """Find the source of filaments of smell in a turbulent wind, over 100 metres (Farrell et al. 2002).

    Reward: 1 at the source, 0 otherwise.

    Ends: terminated within `goal_radius` of the source; truncated after `max_steps` steps.
    """
    return PlumeNav(
        field=Filaments(source=(5.0, 0.0), air=Turbulence()),
        sensor=Together((Odour(threshold=1e3), WindSense())),
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
    """Find the source in a recorded plume, a Recording or a file; by default a small synthetic film.

    `pixel_size`, `frame_rate` and `source_pixel` are for a file that does not contain them. `wind` is the velocity
    that the agent feels, (x, y): frames do not show it.

    Reward: 1 at the source, 0 otherwise.

    Ends: terminated within `goal_radius` of the source; truncated after `max_steps` steps.
    """
    recording = _recorded(recording, pixel_size=pixel_size, frame_rate=frame_rate, source_pixel=source_pixel)
    if wind is not None:
        recording = replace(recording, wind=wind)
    height, width = recording.frames.shape[1:]
    size = recording.pixel_size
    high = (size * (width - 1), size * (height - 1))
    on_grid = size == 1.0
    return PlumeNav(
        field=recording,
        sensor=Together((Concentration(), WindSense())),
        motion=Compass(step_length=size, on_grid=on_grid),
        start=Start(low=(high[0] / 2, 0.0), high=high),
        grid_size=(width, height),
        low=(0.0, 0.0),
        high=high,
        goal_radius=3.0 * size,
        max_steps=500,
        trail=trail,
    )


def _recorded(recording: Any, **numbers: Any) -> Recording:
    if isinstance(recording, str | Path):
        return Recording.load(recording, **numbers)
    if recording is not None and not isinstance(recording, Recording):
        raise ValidationError("recording", recording, "a Recording or the path of a file of frames")
    for name, value in numbers.items():
        if value is not None:
            raise ValidationError(name, value, "None: only a file may need it")
    return _film() if recording is None else recording


@cache
def _film() -> Recording:
    """Filmed once: it never changes, and to compile it takes a second."""
    return synthetic()
