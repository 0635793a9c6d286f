"""Search strategies of animals and robots."""

from tropism.plume.strategies.cast_and_surge import CastAndSurge
from tropism.plume.strategies.klinotaxis import Klinotaxis
from tropism.plume.strategies.random_walk import RandomWalk
from tropism.plume.strategies.run_tumble import RunAndTumble
from tropism.plume.strategies.strategy import Strategy

__all__ = [
    "CastAndSurge",
    "Klinotaxis",
    "RandomWalk",
    "RunAndTumble",
    "Strategy",
]
