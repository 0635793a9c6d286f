"""Source tracking: search by Bayesian inference from odour hits, on a grid (Vergassola et al. 2007)."""

from tropism.plume.tracking.belief import BeliefState, HitTable
from tropism.plume.tracking.hits import HitModel, IsotropicHits, WindyHits
from tropism.plume.tracking.strategies import BeliefStrategy, Infotaxis, SpaceAwareInfotaxis

__all__ = [
    "BeliefState",
    "BeliefStrategy",
    "HitModel",
    "HitTable",
    "Infotaxis",
    "IsotropicHits",
    "SpaceAwareInfotaxis",
    "WindyHits",
]
