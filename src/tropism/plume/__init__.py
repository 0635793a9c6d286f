"""The physics and biology of olfactory search: fields, winds, sensors, motions, rewards, strategies."""

from tropism.plume.fields import (
    DATA_SETS,
    Field,
    Filaments,
    Gaussian,
    Meander,
    Movie,
    MovingSource,
    PlumeRecording,
    Puffs,
    PulsedSource,
    SeveralSources,
    load_data_set,
)
from tropism.plume.measurement import PlumeStatistics, measure
from tropism.plume.search import search
from tropism.plume.strategies import CastAndSurge, CounterTurning, Fly, Klinotaxis, RandomWalk, RunAndTumble, Strategy

__all__ = [
    "DATA_SETS",
    "CastAndSurge",
    "CounterTurning",
    "Field",
    "Filaments",
    "Fly",
    "Gaussian",
    "Klinotaxis",
    "Meander",
    "Movie",
    "MovingSource",
    "PlumeRecording",
    "PlumeStatistics",
    "Puffs",
    "PulsedSource",
    "RandomWalk",
    "RunAndTumble",
    "SeveralSources",
    "Strategy",
    "load_data_set",
    "measure",
    "search",
]
