"""Source tracking written a second time, in plain NumPy and SciPy, one cell at a time: slow and independent."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import k0
from scipy.stats import poisson

Cell = tuple[int, ...]


def isotropic_mean(length: float, rate: float) -> Callable[[NDArray[Any]], float]:
    def mean(offset: NDArray[Any]) -> float:
        d = float(np.linalg.norm(offset))
        return {
            1: lambda: rate * 2 * length / (2 * length - 1) * math.exp(-d / length),
            2: lambda: rate * float(k0(d / length)) / math.log(2 * length),
            3: lambda: rate / (2 * d) * math.exp(-d / length),
        }[len(offset)]()

    return mean


def windy_mean(rate: float) -> Callable[[NDArray[Any]], float]:
    length = math.sqrt((150 / 4) / (1 + 150 / 4))

    def mean(offset: NDArray[Any]) -> float:
        d = float(np.linalg.norm(offset))
        return rate / d * math.exp(2.0 * -float(offset[0]) / 2 - d / length)

    return mean


@dataclass
class SlowSearch:
    """`mean` is a function of the source's position minus the agent's."""

    mean: Callable[[NDArray[Any]], float]
    shape: Cell
    num_hits: int

    def cells(self) -> Iterator[Cell]:
        return itertools.product(*[range(size) for size in self.shape])

    def likelihood(self, position: Cell, source: Cell, hits: int) -> float:
        """Of hits at a position where the source is not."""
        if position == source:
            return 0.0
        mean = self.mean(np.subtract(source, position))
        return float(poisson.sf(hits - 1, mean) if hits == self.num_hits - 1 else poisson.pmf(hits, mean))

    def joint(self, belief: NDArray[Any], position: Cell, hits: int) -> NDArray[Any]:
        joint = np.zeros(self.shape)
        for cell in self.cells():
            joint[cell] = belief[cell] * self.likelihood(position, cell, hits)
        return joint

    def update(self, belief: NDArray[Any], position: Cell, hits: int) -> NDArray[Any]:
        joint = self.joint(belief, position, hits)
        return joint / joint.sum()

    def neighbours(self, position: Cell) -> dict[int, Cell]:
        """The cell after each action that stays inside."""
        moves: dict[int, Cell] = {}
        for axis, side in itertools.product(range(len(self.shape)), (0, 1)):
            cell = list(position)
            cell[axis] += 2 * side - 1
            if 0 <= cell[axis] < self.shape[axis]:
                moves[2 * axis + side] = tuple(cell)
        return moves

    def costs(self, name: str, belief: NDArray[Any], position: Cell) -> dict[int, float]:
        """The cost of each action, straight from the definition of the strategy."""
        return {action: COSTS[name](self, belief, position, cell) for action, cell in self.neighbours(position).items()}


def entropy(belief: NDArray[Any]) -> float:
    positive = belief[belief > 0]
    return float(-(positive * np.log2(positive)).sum())


def distances(search: SlowSearch, cell: Cell) -> NDArray[Any]:
    return sum(np.abs(axis - at) for axis, at in zip(np.indices(search.shape), cell, strict=True))  # pyright: ignore


def posteriors(search: SlowSearch, belief: NDArray[Any], cell: Cell) -> Iterator[tuple[float, NDArray[Any]]]:
    """The probability of each outcome without the source, and the belief after it."""
    for hits in range(search.num_hits):
        joint = search.joint(belief, cell, hits)
        if joint.sum() > 0:
            yield float(joint.sum()), joint / joint.sum()


def infotaxis(search: SlowSearch, belief: NDArray[Any], _position: Cell, cell: Cell) -> float:
    return sum(p * entropy(after) for p, after in posteriors(search, belief, cell))


def space_aware(search: SlowSearch, belief: NDArray[Any], _position: Cell, cell: Cell) -> float:
    total = 0.0
    for p, after in posteriors(search, belief, cell):
        total += p * math.log2(float((after * distances(search, cell)).sum()) + 2 ** (entropy(after) - 1) - 0.5)
    return total


def voting(search: SlowSearch, belief: NDArray[Any], position: Cell, cell: Cell) -> float:
    """Minus the probability of the sources from which no other action is nearer, in the Euclidean quadrant."""
    step = np.subtract(cell, position)
    total = 0.0
    for source in search.cells():
        offset = np.subtract(source, position)
        along = float(offset @ step)
        if along > 0 and along >= np.linalg.norm(offset - along * step):
            total += belief[source]
    return -total


COSTS: dict[str, Callable[..., float]] = {
    "infotaxis": infotaxis,
    "space-aware-infotaxis": space_aware,
    "greedy": lambda search, belief, _position, cell: -belief[cell],
    "mean-distance": lambda search, belief, _position, cell: float((belief * distances(search, cell)).sum()),
    "qmdp": lambda search, belief, _position, cell: -float((belief * 0.9 ** distances(search, cell)).sum()),
    "voting": voting,
    "most-likely-state": lambda search, belief, _position, cell: float(
        distances(search, cell)[np.unravel_index(np.argmax(belief), belief.shape)]
    ),
}
