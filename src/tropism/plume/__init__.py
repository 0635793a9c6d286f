"""The physics and biology of olfactory search: fields, winds, sensors, motions, rewards, strategies."""

from tropism.plume.fields import (
    DATA_SETS,
    Field,
    Filaments,
    Gaussian,
    Meander,
    Movie,
    PlumeRecording,
    Puffs,
    load_data_set,
)
from tropism.plume.measurement import PlumeStatistics, measure
from tropism.plume.search import search
from tropism.plume.strategies import CastAndSurge, Klinotaxis, RandomWalk, RunAndTumble, Strategy

__all__ = [
    "DATA_SETS",
    "CastAndSurge",
    "Field",
    "Filaments",
    "Gaussian",
    "Klinotaxis",
    "Meander",
    "Movie",
    "PlumeRecording",
    "PlumeStatistics",
    "Puffs",
    "RandomWalk",
    "RunAndTumble",
    "Strategy",
    "load_data_set",
    "measure",
    "search",
]
