"""Search strategies of animals and robots."""

from tropism.plume.strategies.cast_and_surge import CastAndSurge
from tropism.plume.strategies.fly import Fly
from tropism.plume.strategies.klinotaxis import Klinotaxis
from tropism.plume.strategies.moth import CounterTurning
from tropism.plume.strategies.random_walk import RandomWalk
from tropism.plume.strategies.run_tumble import RunAndTumble
from tropism.plume.strategies.strategy import Strategy

__all__ = [
    "CastAndSurge",
    "CounterTurning",
    "Fly",
    "Klinotaxis",
    "RandomWalk",
    "RunAndTumble",
    "Strategy",
]
