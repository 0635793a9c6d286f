"""Concentration fields, one file each."""

from tropism.plume.fields.data_sets import DATA_SETS, load_data_set
from tropism.plume.fields.field import Field
from tropism.plume.fields.filaments import Filaments
from tropism.plume.fields.gaussian import Gaussian
from tropism.plume.fields.meander import Meander
from tropism.plume.fields.movie import Movie
from tropism.plume.fields.puffs import Puffs
from tropism.plume.fields.recording import PlumeRecording, synthetic_recording
from tropism.plume.fields.shared import Shared, share
from tropism.plume.fields.sources import MovingSource, PulsedSource, SeveralSources
from tropism.plume.fields.turbulence import Turbulence

FOR_GRIDS = {"gaussian": Gaussian.for_grid, "meander": Meander.for_grid}  # by the names that `PlumeEnv` takes

__all__ = [
    "DATA_SETS",
    "FOR_GRIDS",
    "Field",
    "Filaments",
    "Gaussian",
    "Meander",
    "Movie",
    "MovingSource",
    "PlumeRecording",
    "Puffs",
    "PulsedSource",
    "SeveralSources",
    "Shared",
    "Turbulence",
    "load_data_set",
    "share",
    "synthetic_recording",
]
