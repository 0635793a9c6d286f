"""Evaluate: the same seeded episodes for every policy, and how sure one can be of what came out.

A policy that is pure plays compiled, all episodes at once; any other plays them one by one, here or on a server.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tropism.core.environment import Environment
from tropism.core.rollout.episodes import run_episodes
from tropism.envs.plume.nav import PlumeNav
from tropism.plume.search import rate_interval, search
from tropism.plume.strategies import Strategy
from tropism.train.runner import Moment, Player, Table

RESAMPLES = 2000
LEVEL = 0.95
LARGEST = 1024  # episodes of a part that is played at once
PATIENCE = 5  # answers in a row that are no action, before an episode is given up


class Interval(NamedTuple):
    """A mean, and the interval that covers it with 95 % confidence."""

    mean: float
    low: float
    high: float


class Search(NamedTuple):
    """What became of each search for a source."""

    found: NDArray[Any]
    efficiency: NDArray[Any]  # the straight way over the way gone
    paths: NDArray[Any]  # (moments, episodes, 2), from the start; agents rest where they end

    @property
    def success(self) -> Interval:
        return wilson(self.found)


@dataclass(frozen=True)
class Evaluation:
    """What became of each episode; episode i has the seed `seed + i`."""

    policy: str
    seed: int
    returns: NDArray[Any]
    lengths: NDArray[Any]
    search: Search | None = None  # where there is something to find

    def summary(self) -> dict[str, Any]:
        """The figures of a report; time and efficiency are those of episodes that found the source."""
        figures: dict[str, Any] = {"policy": self.policy, "episodes": len(self.returns), "seed": self.seed}
        if self.search is None:
            return figures | {"return": bootstrap(self.returns), "steps": bootstrap(self.lengths)}
        found = self.search.found
        times = self.lengths[found]
        quantiles = np.percentile(times, (10, 50, 90)).tolist() if times.size else None
        return figures | {
            "success": self.search.success,
            "time_to_find": bootstrap(times),
            "time_quantiles": quantiles,
            "path_efficiency": bootstrap(self.search.efficiency[found]),
            "return": bootstrap(self.returns),
        }


def evaluate(
    name: str,
    env: Environment,
    params: Any,
    strategy: Strategy,
    seed: int,
    num_episodes: int,
    show: Callable[[int], None] = lambda _done: None,
) -> Evaluation:
    """A pure policy in a pure environment: compiled. Many episodes run in parts, and `show` is called after each."""
    size = math.ceil(num_episodes / num_parts(num_episodes))  # equal parts share one compilation
    parts: list[Evaluation] = []
    for done in range(0, num_episodes, size):
        parts.append(_part(name, env, params, strategy, seed + done, size))
        show(min(done + size, num_episodes))
    return parts[0] if len(parts) == 1 else _joined(parts, num_episodes)


def num_parts(num_episodes: int) -> int:
    return math.ceil(num_episodes / LARGEST)


def _part(name: str, env: Environment, params: Any, strategy: Strategy, seed: int, num_episodes: int) -> Evaluation:
    if isinstance(env, PlumeNav):
        outcome = search(env, strategy, seed, num_episodes, params=params, paths=True)
        searched = Search(*(np.asarray(part) for part in (outcome.found, outcome.efficiency, outcome.path)))
        return Evaluation(name, seed, np.asarray(outcome.reward), np.asarray(outcome.steps), searched)
    done = run_episodes(env, strategy, seed, num_episodes, params, _nothing)
    return Evaluation(name, seed, np.asarray(done.reward), np.asarray(done.steps))


def _joined(parts: list[Evaluation], num_episodes: int) -> Evaluation:
    """One evaluation; the last part may have played more episodes than were asked for."""
    returns, lengths = (
        np.concatenate(each)[:num_episodes]
        for each in ([part.returns for part in parts], [part.lengths for part in parts])
    )
    searches = [part.search for part in parts if part.search is not None]
    if not searches:
        return Evaluation(parts[0].policy, parts[0].seed, returns, lengths)
    found, efficiency = (np.concatenate([each[i] for each in searches])[:num_episodes] for i in (0, 1))
    paths = np.concatenate([each.paths for each in searches], 1)[:, :num_episodes]
    return Evaluation(parts[0].policy, parts[0].seed, returns, lengths, Search(found, efficiency, paths))


def _nothing(_note: Any, _state: Any, _timestep: Any) -> tuple[()]:
    """What there is to note of an episode without a source."""
    return ()


def play(
    name: str,
    table: Table,
    player: Player,
    seed: int,
    num_episodes: int,
    max_steps: int = 1000,
    show: Callable[[int], None] = lambda _done: None,
) -> Evaluation:
    """Any other policy, wherever the table stands: one episode after the other, of `max_steps` at most."""
    episodes: list[list[Moment]] = []
    for number in range(num_episodes):
        episodes.append(_episode(table, player, seed + number, max_steps))
        show(number + 1)
    returns = np.array([sum(moment.reward for moment in moments) for moments in episodes])
    lengths = np.array([len(moments) - 1 for moments in episodes])
    if any(moment.xy is None for moments in episodes for moment in moments):
        return Evaluation(name, seed, returns, lengths)
    found = np.array([moments[-1].found for moments in episodes])
    longest = lengths.max() + 1
    paths = np.array([[moments[min(k, len(moments) - 1)].xy for moments in episodes] for k in range(longest)], float)
    return Evaluation(name, seed, returns, lengths, Search(found, _efficiency(paths), paths))


def _episode(table: Table, player: Player, seed: int, max_steps: int) -> list[Moment]:
    moment = table.reset(seed)
    player.begin(seed)
    moments, refused = [moment], 0
    while not moment.done and len(moments) <= max_steps and refused < PATIENCE:
        moment = table.step(player.act(moment))
        refused = 0 if moment.error is None else refused + 1
        if not refused:
            moments.append(moment)
    return moments


def _efficiency(paths: NDArray[Any]) -> NDArray[Any]:
    gone = np.linalg.norm(np.diff(paths, axis=0), axis=-1).sum(0)
    return np.linalg.norm(paths[-1] - paths[0], axis=-1) / np.maximum(gone, 1e-9)


def wilson(hits: NDArray[Any]) -> Interval:
    """A rate with Wilson's interval, which, other than a bootstrap, is not empty where all or none succeed."""
    rate = float(np.mean(hits))
    return Interval(rate, *rate_interval(rate, len(hits)))


def bootstrap(values: NDArray[Any]) -> Interval | None:
    """A mean with the percentile interval of its bootstrap; None where there is no value."""
    if not values.size:
        return None
    draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[draws].mean(1), ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Interval(float(values.mean()), float(low), float(high))
