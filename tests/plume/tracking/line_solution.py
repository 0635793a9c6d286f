"""Point-based value iteration (Pineau et al. 2003): an oracle for the smallest mean search time on a line.

A plan has, for each cell of the source, an expected number of steps: a vector. The smallest product of a belief and the
vectors at its position is an upper bound of the optimum, which decreases with every backup and every belief added.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tropism.plume.tracking.belief import HitTable

EXPLORATION = 0.1  # share of random actions in the searches whose beliefs are backed up

Vectors = list[NDArray[Any]]  # by position: (plans, cells)


class LineSolution:
    """Plans for a search on a line, improved by `improve`."""

    def __init__(self, table: HitTable, first_hits: NDArray[Any], seed: int = 0):
        """`first_hits` are the weights of the first numbers of hits."""
        self._size, self._start = table.shape[0], table.start[0]
        full = np.asarray(table.likelihood, float)
        full /= np.maximum(full.sum(0, keepdims=True), 1e-300)  # rounded to single precision
        # By position: the probability of each number of hits for a source in each cell, (hits, cells).
        self._likelihood = [full[:, self._size - at : 2 * self._size - at] for at in range(self._size)]
        self._weights = np.asarray(first_hits, float) / np.sum(first_hits)
        self._rng = np.random.default_rng(seed)
        self._beliefs: list[list[NDArray[Any]]] = [[] for _ in range(self._size)]
        self.vectors: Vectors = [_sweeps(at, self._size) for at in range(self._size)]

    def value(self) -> float:
        """The mean search time of the best plans: an upper bound of the optimum."""
        values = [float((self.vectors[self._start] @ belief).min()) for belief in self._first_beliefs()]
        return float(self._weights @ values)

    def improve(self, searches: int, backups: int) -> float:
        """Add the beliefs of some searches by the present plans, back up all beliefs, and return the value."""
        for _ in range(searches):
            self._add_search()
        points = [np.array(each).reshape(-1, self._size) for each in self._beliefs]
        for _ in range(backups):
            self.vectors = [self._backup(at, points[at]) for at in range(self._size)]
        return self.value()

    def _first_beliefs(self) -> NDArray[Any]:
        joint = self._likelihood[self._start]
        return joint / joint.sum(1, keepdims=True)

    def _add_search(self) -> None:
        """Record the beliefs of one search without a source; some actions are random."""
        at, belief = self._start, self._first_beliefs()[self._rng.choice(len(self._weights), p=self._weights)]
        not_found = 1.0
        while not_found > 1e-4:
            self._beliefs[at].append(belief)
            options = self._outcomes(at, belief[None])
            best = int(np.argmin([cost[0] @ belief for _, cost in options]))
            at = options[self._rng.integers(len(options)) if self._rng.random() < EXPLORATION else best][0]
            not_found *= 1 - belief[at]
            joint = self._likelihood[at] * belief
            if joint.sum() <= 0:
                return
            after = joint[self._rng.choice(len(joint), p=joint.sum(1) / joint.sum())]
            belief = after / after.sum()

    def _outcomes(self, at: int, beliefs: NDArray[Any]) -> list[tuple[int, NDArray[Any]]]:
        """For each action, the position after it, and for each belief the vector of the best plan from there."""
        outcomes: list[tuple[int, NDArray[Any]]] = []
        for after in (at - 1, at + 1):
            if 0 <= after < self._size:
                cost = np.ones_like(beliefs)
                for likelihood in self._likelihood[after]:
                    best = np.argmin((beliefs * likelihood) @ self.vectors[after].T, 1)
                    cost += likelihood * self.vectors[after][best]
                outcomes.append((after, cost))
        return outcomes

    def _backup(self, at: int, beliefs: NDArray[Any]) -> NDArray[Any]:
        """The best plans for each belief, of the present ones and of those with one more action at their beginning."""
        if not len(beliefs):
            return self.vectors[at]
        candidates = [cost for _, cost in self._outcomes(at, beliefs)]
        values = np.array([(beliefs * each).sum(1) for each in candidates])
        new = np.where((values.argmin(0) == 0)[:, None], candidates[0], candidates[-1])
        plans = np.concatenate([self.vectors[at], new])
        best = np.unique(np.argmin(beliefs @ plans.T, 1))
        return plans[np.union1d(best, [0, 1])]  # the first two cover beliefs that no search has met


def _sweeps(at: int, size: int) -> NDArray[Any]:
    """The plans to go to one end and then to the other."""
    cells = np.arange(size)
    left = np.where(cells < at, at - cells, at + cells)
    right = np.where(cells > at, cells - at, 2 * (size - 1) - at - cells)
    return np.array([left, right], float)
