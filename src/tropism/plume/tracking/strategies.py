"""Strategies that act on the belief: infotaxis and others, each a `Policy`.

Ties are resolved in favour of the first action, as in Loisy & Eloy (2022). Actions that leave the grid are never taken.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from tropism.plume import checks
from tropism.plume.strategies.strategy import Strategy
from tropism.plume.tracking.belief import BeliefState, HitTable, draw_index, expectations, xlog2x

TIE = 2e-6  # relative difference of costs that is no reason to prefer an action; rounding errors are smaller
CELL_TIE = 1e-4  # the same for probabilities of cells, whose rounding errors add up over a search
CERTAIN = 1e-6  # a cell with more than 1 minus this probability contains the source


class BeliefStrategy(Strategy):
    """Abstract: minimizes `costs`. Updates a belief of its own by the observed hits, or observes the belief."""

    table: HitTable
    observes_belief: bool = eqx.field(static=True, default=False)

    def init(self, key: Any) -> BeliefState | None:
        return None if self.observes_belief else self.table.initial()

    def act(self, key: Any, memory: BeliefState | None, obs: Any) -> tuple[Int[Array, ""], BeliefState | None]:
        if memory is None:
            dtype = self.table.likelihood.dtype
            return self.choose(key, BeliefState(obs["position"], obs["belief"].astype(dtype))), None
        state = self.table.update(memory, obs[0].astype(jnp.int32))
        action = self.choose(key, state)
        return action, BeliefState(self.table.move(state.position, action), state.belief)

    def choose(self, key: Any, state: BeliefState) -> Int[Array, ""]:
        neighbours = self.table.neighbours(state.position)
        inside = jnp.all((neighbours >= 0) & (neighbours < jnp.array(self.table.shape)), -1)
        costs = jnp.where(inside, self.costs(key, state, neighbours), jnp.inf)
        return jnp.argmax(costs <= costs.min() + TIE * jnp.abs(costs.min())).astype(jnp.int32)

    @abstractmethod
    def costs(self, key: Any, state: BeliefState, neighbours: Int[Array, "actions dims"]) -> Float[Array, " actions"]:
        """The cost of each action; of one that leaves the grid, any number."""


class Greedy(BeliefStrategy):
    """Maximizes the probability to find the source in the next step."""

    def costs(self, key: Any, state: BeliefState, neighbours: Any) -> Float[Array, " actions"]:
        return -_find_probability(state, neighbours)


class MeanDistance(BeliefStrategy):
    """Minimizes the expected Manhattan distance to the source after the next step."""

    def costs(self, key: Any, state: BeliefState, neighbours: Any) -> Float[Array, " actions"]:
        return _expectation(state, neighbours, lambda distance: distance)


class Qmdp(BeliefStrategy):
    """Maximizes the value of an agent that knows the source from the next step on (Littman et al. 1995).

    A source at distance d then has the value `discount`^d. Without a discount this is `MeanDistance`.
    """

    discount: Any = 0.9

    def __check_init__(self) -> None:
        checks.require_fraction(discount=self.discount)

    def costs(self, key: Any, state: BeliefState, neighbours: Any) -> Float[Array, " actions"]:
        return -_expectation(state, neighbours, lambda distance: self.discount**distance)


class Voting(BeliefStrategy):
    """Takes the action that is most likely the best: cells vote for their direction (Cassandra et al. 1996)."""

    def costs(self, key: Any, state: BeliefState, neighbours: Any) -> Float[Array, " actions"]:
        offset = _cells(state.belief) - state.position
        votes: list[Any] = []
        for axis in range(offset.shape[-1]):
            along = offset[..., axis]
            across = jnp.sum(offset**2, -1) - along**2
            votes += [jnp.where((side * along > 0) & (along**2 >= across), state.belief, 0).sum() for side in (-1, 1)]
        return -jnp.stack(votes)


class MostLikelyState(BeliefStrategy):
    """Goes to the most likely cell (Cassandra et al. 1996), the first of several."""

    def costs(self, key: Any, state: BeliefState, neighbours: Any) -> Float[Array, " actions"]:
        most_likely = state.belief >= (1 - CELL_TIE) * state.belief.max()
        return _distance_to_cell(state, neighbours, jnp.argmax(most_likely))


class Thompson(BeliefStrategy):
    """Goes to a cell that is drawn from the belief at each step."""

    def costs(self, key: Any, state: BeliefState, neighbours: Any) -> Float[Array, " actions"]:
        return _distance_to_cell(state, neighbours, draw_index(key, state.belief.ravel()))


class Infotaxis(BeliefStrategy):
    """Minimizes the expected entropy of the belief after the next step (Vergassola et al. 2007).

    With likelihoods L(h, s) of hits h and a belief p(s), the expected entropy is the sum over h of Z log Z - q log q,
    where q = p L is summed over cells s to Z. As q log q = L p log p + p L log L, and L sums to 1 over h, all sums
    over cells are products of p and fixed tables; the sum of p log p differs between actions in one cell only.
    Far from the source, the entropies of actions differ by very little. The probability of no hit is therefore 1 minus
    that of the others, so that every term is small and precise in single precision.
    """

    features: Float[Array, "columns ..."]  # pyright: ignore[reportGeneralTypeIssues]  the constructor sets it

    def __init__(self, table: HitTable, observes_belief: bool = False):
        self.table, self.observes_belief = table, observes_belief
        hit = table.likelihood[1:]
        hit_entropy = _complement_log2(hit.sum(0)) + xlog2x(hit).sum(0)
        self.features = jnp.concatenate([hit, hit_entropy[None]]).at[:, *table.shape].set(0)

    def costs(self, key: Any, state: BeliefState, neighbours: Any) -> Float[Array, " actions"]:
        sums = _after_moves(self.features, state.belief, neighbours)
        hit, hit_entropy = sums[:, :-1], sums[:, -1]
        found = _find_probability(state, neighbours)
        costs = _complement_log2(found + hit.sum(-1)) + xlog2x(hit).sum(-1) + xlog2x(found) - hit_entropy
        return _prefer_certain(found, costs)


class SpaceAwareInfotaxis(BeliefStrategy):
    """Minimizes the expectation of log2(D + 2^(H - 1) - 1/2) after the next step (Loisy & Eloy 2022).

    D is the expected Manhattan distance to the source and H the entropy of the belief.
    """

    features: Float[Array, "columns ..."]  # pyright: ignore[reportGeneralTypeIssues]  the constructor sets it

    def __init__(self, table: HitTable, observes_belief: bool = False):
        self.table, self.observes_belief = table, observes_belief
        likelihood = table.likelihood
        axes = [jnp.abs(jnp.arange(-size, size + 1)) for size in table.shape]
        distance = jnp.stack(jnp.meshgrid(*axes, indexing="ij")).sum(0)
        self.features = jnp.concatenate([likelihood, xlog2x(likelihood), likelihood * distance])

    def costs(self, key: Any, state: BeliefState, neighbours: Any) -> Float[Array, " actions"]:
        sums = _after_moves(self.features, state.belief, neighbours)
        probability, of_likelihood, distance = jnp.split(sums, 3, -1)
        of_belief = _after_moves(self.table.likelihood, lax.optimization_barrier(xlog2x(state.belief)), neighbours)
        positive = probability > 1e-10
        total = jnp.where(positive, probability, 1)
        entropy = jnp.log2(total) - (of_belief + of_likelihood) / total
        value = distance / total + 2 ** (entropy - 1) - 0.5
        value = jnp.where(value > 0, jnp.log2(jnp.where(value > 0, value, 1)), value)
        return _prefer_certain(
            _find_probability(state, neighbours), jnp.where(positive, probability * value, 0).sum(-1)
        )


STRATEGIES: dict[str, Callable[[HitTable, bool], BeliefStrategy]] = {
    "infotaxis": Infotaxis,
    "space-aware-infotaxis": SpaceAwareInfotaxis,
    "greedy": Greedy,
    "mean-distance": MeanDistance,
    "voting": Voting,
    "most-likely-state": MostLikelyState,
    "thompson": Thompson,
    "qmdp": Qmdp,
}


def _after_moves(
    features: Float[Array, "columns ..."], weights: Float[Array, "..."], neighbours: Int[Array, "actions dims"]
) -> Float[Array, "actions columns"]:
    """The sums over cells of `weights` times each feature, seen from the position after each action."""
    return jax.vmap(lambda cell: expectations(features, weights, cell))(neighbours)


def _find_probability(state: BeliefState, neighbours: Int[Array, "actions dims"]) -> Float[Array, " actions"]:
    """The probability of the source in each neighbouring cell; any number outside of the grid."""
    return jax.vmap(lambda cell: state.belief[tuple(cell)])(neighbours)


def _prefer_certain(found: Float[Array, " actions"], costs: Float[Array, " actions"]) -> Float[Array, " actions"]:
    """If the source is known, every action has the same entropy; only one finds it."""
    return jnp.where(found > 1 - CERTAIN, -1e9, costs)


def _complement_log2(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """(1 - x) log2 (1 - x), precise for small x; 0 for x = 1."""
    rest = jnp.maximum(1 - x, 0)
    return rest * jnp.log1p(-jnp.minimum(x, 1 - 1e-7)) / math.log(2)


def _expectation(
    state: BeliefState, neighbours: Int[Array, "actions dims"], function: Callable[[Any], Any]
) -> Float[Array, " actions"]:
    """The expectation of a function of the Manhattan distance from each neighbour to the source."""
    distance = jnp.abs(_cells(state.belief) - neighbours.reshape(-1, *[1] * state.belief.ndim, neighbours.shape[-1]))
    weighted = state.belief * function(distance.sum(-1).astype(state.belief.dtype))
    return weighted.reshape(len(neighbours), -1).sum(-1)


def _distance_to_cell(state: BeliefState, neighbours: Any, index: Int[Array, ""]) -> Float[Array, " actions"]:
    """The Manhattan distance from each neighbour to the cell with this flat index."""
    cell = jnp.stack(jnp.unravel_index(index, state.belief.shape))
    return jnp.abs(neighbours - cell).sum(-1).astype(state.belief.dtype)


def _cells(belief: Float[Array, "..."]) -> Int[Array, "... dims"]:
    return jnp.stack(jnp.meshgrid(*[jnp.arange(size) for size in belief.shape], indexing="ij"), -1)
