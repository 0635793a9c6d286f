"""The belief: the probability of each cell to contain the source, and its update by Bayes' rule."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Float, Int

from tropism.plume.tracking.hits import HitModel, poisson_bins, shell_volume

PARTIAL_SUMS = 4  # of a sum that is written out: an addition does not wait for the one before it


class BeliefState(eqx.Module):
    """The knowledge of one agent: its position, and the probability of each cell to contain the source."""

    position: Int[Array, " dims"]
    belief: Float[Array, "..."]


class HitTable(eqx.Module):
    """The probability of each number of hits at each offset of the source; zero at offset zero.

    Offsets along an axis of n cells are from -n to n. `start` is the first position.
    """

    likelihood: Float[Array, "hits ..."]
    start: tuple[int, ...] = eqx.field(static=True)

    @staticmethod
    def of(model: HitModel, shape: tuple[int, ...], num_hits: int, start: tuple[int, ...]) -> "HitTable":
        axes = [jnp.arange(-size, size + 1, dtype=float) for size in shape]
        offset = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), -1)
        likelihood = jnp.moveaxis(poisson_bins(model.mean_hits(offset), num_hits), -1, 0)
        return HitTable(likelihood.at[:, *shape].set(0), start)

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of the grid."""
        return tuple((side - 1) // 2 for side in self.likelihood.shape[1:])

    @property
    def num_hits(self) -> int:
        return self.likelihood.shape[0]

    @property
    def num_actions(self) -> int:
        return 2 * len(self.shape)

    def initial(self) -> BeliefState:
        """The state before the first observation: the source may be anywhere."""
        uniform = jnp.full(self.shape, 1.0)
        return BeliefState(jnp.array(self.start, jnp.int32), uniform / uniform.size)

    def after_first_hit(self) -> Float[Array, "hits ..."]:
        """The beliefs after each number of hits at the start."""
        position = self.initial().position
        joint = jnp.stack([self.of_hits(hits, position) for hits in range(self.num_hits)])
        return joint / joint.sum(range(1, joint.ndim), keepdims=True)

    def at_offset(self, offset: Int[Array, " dims"]) -> Float[Array, " hits"]:
        return self.likelihood[:, *(offset + jnp.array(self.shape))]

    def of_hits(self, hits: Any, position: Int[Array, " dims"]) -> Float[Array, "..."]:
        """The likelihood of each cell, after hits at `position`."""
        start = jnp.int32(hits), *(jnp.array(self.shape, jnp.int32) - position)
        return lax.dynamic_slice(self.likelihood, start, (1, *self.shape), allow_negative_indices=False)[0]

    def move(self, position: Int[Array, "*batch dims"], action: Any) -> Int[Array, "*batch dims"]:
        """Actions are -x, +x, -y, +y, …; an agent at the edge stays inside."""
        step = jnp.zeros(len(self.shape), jnp.int32).at[action // 2].set(2 * (action % 2) - 1)
        return jnp.clip(position + step, 0, jnp.array(self.shape, jnp.int32) - 1)

    def neighbours(self, position: Int[Array, " dims"]) -> Int[Array, "actions dims"]:
        """The positions after each action; outside of the grid where the action is blocked."""
        steps = [[(2 * (a % 2) - 1) * (a // 2 == axis) for axis in range(len(self.shape))] for a in self._actions()]
        return position + jnp.array(steps, jnp.int32)

    def _actions(self) -> range:
        return range(self.num_actions)

    def update(self, state: BeliefState, hits: Int[Array, ""]) -> BeliefState:
        """The state after hits at its position, where the source is not."""
        return BeliefState(state.position, posterior(state, self.of_hits(hits, state.position)))


def expectations(
    table: Float[Array, "columns ..."], weights: Float[Array, "..."], position: Int[Array, " dims"]
) -> Float[Array, " columns"]:
    """The sums over cells of `weights` times each column of a table of offsets, seen from `position`.

    The sum over the first axis is written out: XLA then computes it in one loop for all columns and all positions of a
    batch, and does not copy the part of the table that is seen.
    """
    start, shape = jnp.array(weights.shape, jnp.int32) - position, (len(table), 1, *weights.shape[1:])
    rows: list[Any] = []
    for row, of_cells in enumerate(weights):
        first = jnp.int32(0), start[0] + row, *start[1:]
        rows.append(of_cells * lax.dynamic_slice(table, first, shape, allow_negative_indices=False)[:, 0])
    total = jnp.reshape(sum(sum(rows[part::PARTIAL_SUMS]) for part in range(PARTIAL_SUMS)), (len(table), -1))
    # A product, because XLA adds up the last axis of an array number by number.
    return jnp.matmul(total, jnp.ones(total.shape[1], table.dtype), precision=lax.Precision.HIGHEST)


def posterior(state: BeliefState, likelihood: Float[Array, "..."]) -> Float[Array, "..."]:
    """Bayes' rule; if no cell is left, the source is at the agent's position."""
    joint = state.belief * likelihood
    total = joint.sum()
    here = [jnp.arange(size) == at for size, at in zip(joint.shape, state.position, strict=True)]
    certain = math.prod(jnp.meshgrid(*here, indexing="ij", sparse=True), start=jnp.ones_like(total))
    return jnp.where(total > 0, joint / jnp.where(total > 0, total, 1), certain)


def first_hit_weights(model: HitModel, table: HitTable) -> Float[Array, " hits"]:
    """Relative probabilities of the first number of hits, at least 1, for a source anywhere in unbounded space."""
    dims = len(table.shape)
    radius = jnp.arange(1, 4 * max(table.shape), dtype=float)
    offset = jnp.zeros((radius.size, dims)).at[:, 0].set(radius)
    weights = poisson_bins(model.mean_hits(offset), table.num_hits) * shell_volume(radius, dims)[:, None]
    return weights.sum(0).at[0].set(0)


def draw_index(key: Any, weights: Float[Array, " n"]) -> Int[Array, ""]:
    """An index drawn in proportion to its weight; a weight of zero is never drawn."""
    cumulative = jnp.cumsum(weights)
    level = random.uniform(key, dtype=weights.dtype) * cumulative[-1]
    return jnp.sum(cumulative <= jnp.where(level < cumulative[-1], level, 0))  # a product may round up


def entropy(belief: Float[Array, "..."]) -> Float[Array, ""]:
    """In bits."""
    return -xlog2x(belief).sum()


def xlog2x(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x log2 x, 0 at 0."""
    return x * jnp.log2(jnp.maximum(x, jnp.finfo(x.dtype).tiny))
