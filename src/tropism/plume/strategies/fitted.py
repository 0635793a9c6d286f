"""A strategy by name, fitted to a body and a nose."""

from typing import Any

from tropism.errors import ValidationError
from tropism.plume.motion import Motion
from tropism.plume.receptors import Receptor
from tropism.plume.sensors import Antennae, Concentration, Hits, Odour, Sensor, Together, WindSense
from tropism.plume.strategies.cast_and_surge import CastAndSurge
from tropism.plume.strategies.klinotaxis import Klinotaxis
from tropism.plume.strategies.random_walk import RandomWalk
from tropism.plume.strategies.run_tumble import RunAndTumble
from tropism.plume.strategies.strategy import Strategy

NAMES = ("random-walk", "klinotaxis", "run-and-tumble", "cast-and-surge")
Smells = Concentration | Odour | Hits | Antennae


def fitted(name: str, sensor: Sensor, motion: Motion) -> Strategy:
    """The strategy for agents that move by `motion` and sense a vector by `sensor`."""
    match name:
        case "random-walk":
            return RandomWalk(motion)
        case "klinotaxis":
            return Klinotaxis(motion, smell=_smell(name, sensor)[0])
        case "run-and-tumble":
            return RunAndTumble(motion, smell=_smell(name, sensor)[0])
        case "cast-and-surge":
            (smell, nose), (wind, feels) = _smell(name, sensor), _wind(name, sensor)
            threshold = {"threshold": 0.5} if isinstance(nose, Odour) else {}
            return CastAndSurge(motion, smell, (wind, wind + 1), feels.apparent, **threshold)
        case _:
            raise ValidationError("strategy", name, f"one of {', '.join(NAMES)}")


def _smell(name: str, sensor: Sensor) -> tuple[int, Any]:
    """Where in the observation the smell is, and what smells."""
    for start, part in _parts(sensor):
        nose = part
        while isinstance(nose, Receptor):
            nose = nose.sensor
        if isinstance(nose, Smells):
            return start, nose
    raise ValidationError("sensor", sensor, f"one that smells, in a vector: {name} follows a smell")


def _wind(name: str, sensor: Sensor) -> tuple[int, WindSense]:
    for start, part in _parts(sensor):
        if isinstance(part, WindSense):
            return start, part
    raise ValidationError("sensor", sensor, f"one that feels the wind, in a vector: {name} goes against it")


def _parts(sensor: Sensor) -> list[tuple[int, Sensor]]:
    """The sensors of a vector, each with the index of its first entry."""
    if not isinstance(sensor, Together):
        return [(0, sensor)]
    starts = [0]
    for part in sensor.parts:
        starts.append(starts[-1] + (part.space((2, 2)).shape or (1,))[0])
    return list(zip(starts, sensor.parts, strict=False))
