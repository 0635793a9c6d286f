"""The interfaces of a search: an environment whose agent looks for a goal."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from numpy.typing import NDArray


@runtime_checkable
class SearchTask(Protocol):
    """An environment with these members is evaluated and drawn as a search: by success, time and path.

    Its `info` has `goal_reached` and `agent_xy`.
    """

    low: tuple[float, float]  # corners of the arena
    high: tuple[float, float]

    def goal(self, params: Any) -> tuple[tuple[Any, Any], Any]:
        """`((x, y), radius)`."""
        ...

    def background(self, state: Any, params: Any) -> Any:
        """A picture of the arena without the agent, (H, W, 3) from 0 to 255; row 0 is the lowest y."""
        ...

    def search(self, policy: Any, seed: int, num_episodes: int, params: Any) -> Any:
        """Run a pure policy, compiled; episode i is that of a `Session` with the seed `seed + i`.

        The result has, per episode, `found`, `steps`, `reward`, `efficiency` (straight distance over path length),
        `shortest` (the steps of the straight way to the goal) and `on_odour` (the share of steps with a signal), and
        `path`, (steps + 1, episodes, 2), where the last position is repeated after an episode ends.
        """
        ...


class SearchTimes(NamedTuple):
    """Distributions of search times, each from one episode; an episode with a drawn source has a single time."""

    found: NDArray[Any]  # (steps + 1,): the probability to find the source in each step, the mean of all episodes
    steps: NDArray[Any]  # (episodes,): the mean time, given that the source is found; NaN if it never is
    not_found: NDArray[Any]  # (episodes,): the probability that the source is not found


@runtime_checkable
class TimedSearch(Protocol):
    """An environment with this member is evaluated by the distribution of its search times."""

    def search_times(self, policy: Any, seed: int, num_episodes: int, params: Any) -> SearchTimes:
        """Run a pure policy, compiled; episode i is that of a `Session` with the seed `seed + i`."""
        ...


def rate_interval(rate: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of the rate of n trials."""
    middle = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * (rate * (1 - rate) / n + z**2 / (4 * n**2)) ** 0.5
    return max(0.0, min(rate, middle - half)), min(1.0, max(rate, middle + half))
