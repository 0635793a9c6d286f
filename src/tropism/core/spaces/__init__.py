"""Spaces: the sets of valid actions and observations."""

from tropism.core.spaces.box import Box, Image
from tropism.core.spaces.composite import Dict, Tuple
from tropism.core.spaces.discrete import Discrete, MultiBinary, MultiDiscrete
from tropism.core.spaces.message import Record, Text
from tropism.core.spaces.model import Model
from tropism.core.spaces.space import Space

__all__ = [
    "Box",
    "Dict",
    "Discrete",
    "Image",
    "Model",
    "MultiBinary",
    "MultiDiscrete",
    "Record",
    "Space",
    "Text",
    "Tuple",
]
