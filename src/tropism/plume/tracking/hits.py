"""Odour hits: their mean number as a function of the source's offset, and their probabilities.

Lengths are in grid cells. An offset is the position of the source minus that of the agent.
"""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tropism.errors import ValidationError
from tropism.plume import checks
from tropism.plume.tracking.bessel import bessel_k0

K0_AT_1 = 0.42102443824070834
OUTSIDE = 1e-3  # largest probability that the source is outside the default grid
SERIES = 32  # terms of the tail of a Poisson distribution, at least


class HitModel(eqx.Module):
    """Abstract: the mean number of hits in a step."""

    @abstractmethod
    def mean_hits(self, offset: Float[Array, "*cells dims"]) -> Float[Array, "*cells"]:
        """The mean at offsets other than zero; at offset zero, where the search ends, any finite number."""


class IsotropicHits(HitModel):
    """Detections without wind (Vergassola et al. 2007), for an agent of radius 1/2 cell, in 1, 2 or 3 dimensions."""

    length: Any = 1.0  # λ/Δx, the distance that odour travels in its lifetime
    rate: Any = 1.0  # R Δt, emissions in a step

    def __check_init__(self) -> None:
        checks.require_positive(length=self.length, rate=self.rate)
        if isinstance(self.length, int | float) and self.length < 1:
            raise ValidationError("length", self.length, "at least 1, one cell")

    def mean_hits(self, offset: Float[Array, "*cells dims"]) -> Float[Array, "*cells"]:
        return self.mean_at(_distance(offset), offset.shape[-1])

    def mean_at(self, distance: Float[Array, "*cells"], dims: int) -> Float[Array, "*cells"]:
        length = jnp.asarray(self.length, distance.dtype)
        if dims == 1:
            return self.rate * 2 * length / (2 * length - 1) * jnp.exp(-distance / length)
        if dims == 2:
            return self.rate * bessel_k0(distance / length) / jnp.log(2 * length)
        return self.rate / (2 * distance) * jnp.exp(-distance / length)

    def default_num_hits(self, dims: int) -> int:
        """One more than the mean in the next cell and its standard deviation, rounded up."""
        mean = float(self.mean_at(jnp.ones(()), dims))
        return math.ceil(mean + math.sqrt(mean)) + 1

    def default_size(self, dims: int, num_hits: int) -> int:
        """The smallest odd size with which the source is inside, up to 1e-3, after any first hit."""
        radius = np.arange(1, int(1000 * self.length))
        probabilities = np.asarray(poisson_bins(self.mean_at(jnp.asarray(radius, float), dims), num_hits), float)
        inside = np.cumsum(probabilities[:, 1:] * shell_volume(radius, dims)[:, None], 0)
        return int(2 * (np.argmax(1 - inside / inside[-1] < OUTSIDE, 0).max() + 1) + 1)

    def default_max_steps(self, dims: int, size: int) -> int:
        """The limit of Loisy & Eloy (2022)."""
        if dims == 1:
            return 4 * size
        mean = self.rate * (K0_AT_1 / math.log(2 * self.length) if dims == 2 else math.exp(-1) / (2 * self.length))
        if mean < 1e-3:
            return 10 * size**dims
        return round(5 * 10**dims * self.length / math.sqrt(min(mean, 1)))


class WindyHits(HitModel):
    """Detections in a wind along +x (Loisy & Heinonen 2023), in 2 dimensions."""

    rate: Any = 2.5  # R̄, emissions in a step
    wind: Any = 2.0  # V̄, speed
    lifetime: Any = 150.0  # τ̄, of the odour

    def __check_init__(self) -> None:
        checks.require_positive(rate=self.rate, wind=self.wind, lifetime=self.lifetime)

    def mean_hits(self, offset: Float[Array, "*cells dims"]) -> Float[Array, "*cells"]:
        length = jnp.sqrt(self.lifetime / self.wind**2 / (1 + self.lifetime / 4))
        distance = _distance(offset)
        return self.rate / distance * jnp.exp(-self.wind * offset[..., 0] / 2 - distance / length)


def _distance(offset: Float[Array, "*cells dims"]) -> Float[Array, "*cells"]:
    """The Euclidean distance; 1 at offset zero."""
    square = jnp.sum(offset**2, -1)
    return jnp.sqrt(jnp.where(square > 0, square, 1))


def poisson_bins(mean: Float[Array, "*cells"], count: int) -> Float[Array, "*cells count"]:
    """The probabilities of 0, 1, …, `count` - 2 hits, and of all larger numbers together."""
    mean = jnp.maximum(mean, jnp.finfo(mean.dtype).tiny)
    last = count - 1

    def probability(hits: int) -> Array:
        return jnp.exp(hits * jnp.log(mean) - mean - math.lgamma(hits + 1))

    bins = [probability(hits) for hits in range(last)]
    series = jnp.ones_like(mean)  # by Horner's rule; unlike 1 - sum, it is precise where the tail is small
    for hits in range(last + SERIES + 7 * math.isqrt(count), last, -1):
        series = 1 + series * mean / hits
    rest = 1 - sum(bins)
    return jnp.stack([*bins, jnp.where(rest > 0.1, rest, probability(last) * series)], -1)


def shell_volume(radius: Any, dims: int) -> Any:
    """The volume between the spheres of radius ± 1/2."""
    return {1: 2 + 0 * radius, 2: 2 * math.pi * radius, 3: 4 * math.pi * (radius**2 + 1 / 12)}[dims]
