"""Criterion for a learnt task: the last hundred finished episodes have a mean return of at least 475.

Imports only the standard library, because it runs in the environments of the peers.
"""

from collections import deque

WINDOW, LEARNT = 100, 475.0


class LastEpisodes:
    """The latest groups of episodes that together hold at least a hundred; a group is one episode or one update."""

    def __init__(self) -> None:
        self.groups: deque[tuple[int, float]] = deque()
        self.count = 0

    def add(self, episodes: int, returns: float) -> None:
        """Add finished episodes, with the sum of their returns."""
        self.groups.append((episodes, returns))
        self.count += episodes
        while self.count - self.groups[0][0] >= WINDOW:
            self.count -= self.groups.popleft()[0]

    @property
    def mean(self) -> float:
        return sum(returns for _, returns in self.groups) / self.count if self.count >= WINDOW else 0.0

    @property
    def learnt(self) -> bool:
        return self.mean >= LEARNT
