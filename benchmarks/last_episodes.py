"""When a task counts as learnt: the hundred episodes that ended last have a mean return of at least 475.

Only the standard library is imported here: it runs in the peers' own environments.
"""

from collections import deque

WINDOW, LEARNT = 100, 475.0


class LastEpisodes:
    """The fewest latest groups of episodes that hold a hundred; a group is one episode, or those of an update."""

    def __init__(self) -> None:
        self.groups: deque[tuple[int, float]] = deque()
        self.count = 0

    def add(self, episodes: int, returns: float) -> None:
        """Some episodes that ended, and the sum of their returns."""
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
