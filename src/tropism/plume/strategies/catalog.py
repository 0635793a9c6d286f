"""Strategies by name, configured for a motion and a sensor."""

from typing import Any

from tropism.errors import ValidationError
from tropism.plume.motion import Continuous, Motion
from tropism.plume.receptors import Receptor
from tropism.plume.sensors import Antennae, Concat, Concentration, Hits, Odour, Sensor, WindSense
from tropism.plume.strategies.cast_and_surge import CastAndSurge
from tropism.plume.strategies.fly import Fly
from tropism.plume.strategies.klinotaxis import Klinotaxis
from tropism.plume.strategies.moth import CounterTurning
from tropism.plume.strategies.random_walk import RandomWalk
from tropism.plume.strategies.run_tumble import RunAndTumble
from tropism.plume.strategies.strategy import Strategy

NAMES = ("random-walk", "klinotaxis", "run-and-tumble", "cast-and-surge", "counter-turning", "fly")
Smells = Concentration | Odour | Hits | Antennae


def make_strategy(name: str, sensor: Sensor, motion: Motion) -> Strategy:
    """The strategy for agents that move by `motion` and sense a vector by `sensor`."""
    match name:
        case "random-walk":
            return RandomWalk(motion)
        case "klinotaxis":
            return Klinotaxis(motion, smell=_smell_sensor(name, sensor)[0])
        case "run-and-tumble":
            return RunAndTumble(motion, smell=_smell_sensor(name, sensor)[0])
        case "cast-and-surge" | "counter-turning":
            (smell, odour_sensor), (wind, wind_sensor) = _smell_sensor(name, sensor), _wind_sensor(name, sensor)
            threshold = {"threshold": 0.5} if isinstance(odour_sensor, Odour) else {}
            kind = CastAndSurge if name == "cast-and-surge" else CounterTurning
            return kind(motion, smell, (wind, wind + 1), wind_sensor.apparent, **threshold)
        case "fly":
            (smell, _), (wind, wind_sensor) = _smell_sensor(name, sensor), _wind_sensor(name, sensor)
            if not isinstance(motion, Continuous) or not wind_sensor.egocentric or wind_sensor.apparent:
                raise ValidationError("motion", motion, f"Continuous, with WindSense(egocentric=True), for {name}")
            return Fly(motion, smell, (wind, wind + 1))
        case _:
            raise ValidationError("strategy", name, f"one of {', '.join(NAMES)}")


def _smell_sensor(name: str, sensor: Sensor) -> tuple[int, Any]:
    """The index of the odour in the observation, and its sensor."""
    for start, part in _vector_parts(sensor):
        odour_sensor = part
        while isinstance(odour_sensor, Receptor):
            odour_sensor = odour_sensor.sensor
        if isinstance(odour_sensor, Smells):
            return start, odour_sensor
    raise ValidationError("sensor", sensor, f"a vector with an odour sensor, which {name} needs")


def _wind_sensor(name: str, sensor: Sensor) -> tuple[int, WindSense]:
    for start, part in _vector_parts(sensor):
        if isinstance(part, WindSense):
            return start, part
    raise ValidationError("sensor", sensor, f"a vector with a WindSense, which {name} needs")


def _vector_parts(sensor: Sensor) -> list[tuple[int, Sensor]]:
    """The sensors of a vector, each with the index of its first entry."""
    if not isinstance(sensor, Concat):
        return [(0, sensor)]
    starts = [0]
    for part in sensor.parts:
        starts.append(starts[-1] + (part.space((2, 2)).shape or (1,))[0])
    return list(zip(starts, sensor.parts, strict=False))
