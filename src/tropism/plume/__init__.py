"""The physics and biology of olfactory search: fields, winds, sensors, motions, rewards, strategies."""

from tropism.plume.fields import Field, Filaments, Gaussian, Meander, Movie, PlumeRecording, Puffs
from tropism.plume.search import search
from tropism.plume.strategies import CastAndSurge, Klinotaxis, RandomWalk, RunAndTumble, Strategy

__all__ = [
    "CastAndSurge",
    "Field",
    "Filaments",
    "Gaussian",
    "Klinotaxis",
    "Meander",
    "Movie",
    "PlumeRecording",
    "Puffs",
    "RandomWalk",
    "RunAndTumble",
    "Strategy",
    "search",
]
