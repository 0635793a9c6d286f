"""Evaluation: run every policy on the same seeded episodes and report means with confidence intervals.

Pure policies run compiled, in batches; others run one episode at a time, in a local or remote session.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tropism.core.devices import use_devices
from tropism.core.environment import Environment
from tropism.core.native.choice import EngineName
from tropism.core.rollout.episodes import MAX_STEPS, run_episodes
from tropism.core.rollout.policy import Policy, observes_text, runs_on_host
from tropism.core.rollout.stepped import SteppedPolicy
from tropism.core.search_task import SearchTask, SearchTimes, TimedSearch, rate_interval
from tropism.core.session.session import Session
from tropism.core.spaces.space import check_option
from tropism.errors import ValidationError
from tropism.train.runner import EpisodeRunner, LocalRunner, StepOutcome

RESAMPLES = 2000
LEVEL = 0.95
MAX_BATCH = 1024  # episodes that run at once
QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.99)  # of search times
DISTANCE_BINS = 6
MAX_REFUSED = 5  # consecutive invalid actions before an episode is abandoned


class Interval(NamedTuple):
    """A mean and its 95 % confidence interval."""

    mean: float
    low: float
    high: float


class SearchResults(NamedTuple):
    """Per-episode results of searches for a source."""

    found: NDArray[Any]
    efficiency: NDArray[Any]  # straight distance over path length
    paths: NDArray[Any]  # (steps + 1, episodes, 2); the last position is repeated after an episode ends
    shortest: NDArray[Any] | None = None  # steps of the straight way to the goal at full speed
    on_odour: NDArray[Any] | None = None  # share of steps
    start_distance: NDArray[Any] | None = None  # to the centre of the goal

    @property
    def success(self) -> Interval:
        return wilson_interval(self.found)


@dataclass(frozen=True)
class Evaluation:
    """Per-episode results of a policy; episode i has the seed `seed + i`."""

    policy: str
    seed: int
    returns: NDArray[Any]
    lengths: NDArray[Any]
    search: SearchResults | None = None  # of a SearchTask
    times: SearchTimes | None = None  # of a TimedSearch

    def summary(self) -> dict[str, Any]:
        """Summary statistics; time and efficiency cover only episodes that found the source."""
        figures: dict[str, Any] = {"policy": self.policy, "episodes": len(self.returns), "seed": self.seed}
        if self.times is not None:
            return figures | _time_figures(self.times)
        if self.search is None:
            return figures | {"return": bootstrap_interval(self.returns), "steps": bootstrap_interval(self.lengths)}
        found = self.search.found
        times = self.lengths[found]
        quantiles = np.percentile(times, (10, 50, 90)).tolist() if times.size else None
        return figures | {
            "success": self.search.success,
            "time_to_find": bootstrap_interval(times),
            "time_quantiles": quantiles,
            "path_efficiency": bootstrap_interval(self.search.efficiency[found]),
            "return": bootstrap_interval(self.returns),
            **self._search_figures(self.search),
        }

    def survival(self, num: int = 21) -> tuple[NDArray[Any], NDArray[Any]]:
        """Steps, and the share of episodes that have not found the source by then."""
        assert self.search is not None
        steps = np.linspace(0, self.lengths.max(), num).round().astype(int)
        times = np.sort(np.where(self.search.found, self.lengths, np.inf))
        return steps, 1 - np.searchsorted(times, steps, side="right") / len(times)

    def _search_figures(self, search: SearchResults) -> dict[str, Any]:
        """T_min/T over successful episodes, time on odour, success by distance, and survival, if they are known."""
        figures: dict[str, Any] = {}
        if search.shortest is not None and not np.isnan(search.shortest).any():
            ratio = search.shortest[search.found] / np.maximum(self.lengths[search.found], 1)
            figures["time_efficiency"] = bootstrap_interval(ratio)
        if search.on_odour is not None:
            figures["on_odour"] = bootstrap_interval(search.on_odour)
        if search.start_distance is not None:
            figures["success_by_distance"] = success_by_distance(search)
        steps, searching = self.survival()
        return figures | {"survival": {"steps": steps.tolist(), "searching": searching.tolist()}}


def success_by_distance(search: SearchResults) -> list[dict[str, Any]]:
    """The success rate in each of `DISTANCE_BINS` ranges of the distance at the start, with as many episodes each."""
    assert search.start_distance is not None
    groups = np.array_split(np.argsort(search.start_distance), min(DISTANCE_BINS, len(search.found)))
    distances = [search.start_distance[group] for group in groups]
    return [
        {"from": float(part.min()), "to": float(part.max())} | wilson_interval(search.found[group])._asdict()
        for part, group in zip(distances, groups, strict=True)
    ]


def evaluate(
    name: str,
    env: Environment,
    params: Any,
    policy: Policy,
    seed: int,
    num_episodes: int,
    on_progress: Callable[[int], None] = lambda _done: None,
    devices: Any = None,
    *,
    engine: EngineName = "auto",
    max_steps: int = 1000,
) -> Evaluation:
    """Run a policy; `on_progress` is called with the number of episodes done.

    A pure policy in a pure environment runs compiled, in batches; `devices="all"` spreads each batch over all devices,
    a list over those. Other episodes run one at a time in a session, with at most `max_steps` steps each. With
    `engine="native"`, all episodes run one at a time, with the same results. A policy written in JAX then costs a
    dispatch per step, so `auto` and `xla` run whole batches on XLA.
    """
    check_option("engine", engine, EngineName)
    params, compiled = env.evaluation_params(params), is_compiled(env, policy)
    if not compiled or engine == "native":
        if devices is not None:
            reason = "engine='native' runs on the CPU" if compiled else "this environment or policy is not compiled"
            raise ValidationError("devices", devices, f"no devices: {reason}")
        if compiled and isinstance(env, TimedSearch):
            raise ValidationError("engine", "native", "auto or xla", "search times are computed from beliefs, on XLA")
        limit = MAX_STEPS if compiled else max_steps
        with Session(env, params, engine=engine) as session:
            return evaluate_episodes(name, LocalRunner(session), policy, seed, num_episodes, limit, on_progress)
    batches: list[Evaluation] = []
    with use_devices(devices) as count:
        if count > 1 and isinstance(env, TimedSearch):
            raise ValidationError("devices", devices, "one device: searches weighted by probability run on one")
        for shard in compiled_shards(env, num_episodes):
            batches.append(_evaluate_batch(name, env, params, policy, seed + shard.start, len(shard)))
            on_progress(min(shard.stop, num_episodes))
    return join_evaluations(batches, num_episodes)


def is_compiled(env: Environment, policy: Policy) -> bool:
    return env.pure and not runs_on_host(policy)


def compiled_shards(env: Environment, num_episodes: int) -> list[range]:
    """The batches of an evaluation, as ranges of episodes; they are equal, to share one compilation, so the last one
    may exceed `num_episodes`."""
    if isinstance(env, TimedSearch):  # it has batches of its own
        return [range(num_episodes)]
    size = math.ceil(num_episodes / num_batches(num_episodes))
    return [range(start, start + size) for start in range(0, num_episodes, size)]


def num_batches(num_episodes: int) -> int:
    return math.ceil(num_episodes / MAX_BATCH)


def _evaluate_batch(
    name: str, env: Environment, params: Any, policy: Policy, seed: int, num_episodes: int
) -> Evaluation:
    """Run episodes at once, compiled, with the params of `evaluation_params`."""
    if isinstance(env, TimedSearch):
        times = env.search_times(policy, seed, num_episodes, params)
        return Evaluation(name, seed, times.steps, times.steps, times=times)
    if isinstance(env, SearchTask):
        outcome = env.search(policy, seed, num_episodes, params)
        centre, _ = env.goal(params)
        distance = np.linalg.norm(np.asarray(outcome.start) - np.asarray([float(side) for side in centre]), axis=-1)
        measured = (outcome.found, outcome.efficiency, outcome.path, outcome.shortest, outcome.on_odour, distance)
        results = SearchResults(*map(np.asarray, measured))
        return Evaluation(name, seed, np.asarray(outcome.reward), np.asarray(outcome.steps), results)
    done = run_episodes(env, policy, seed, num_episodes, params, _no_probe)
    return Evaluation(name, seed, np.asarray(done.reward), np.asarray(done.steps))


def join_evaluations(parts: list[Evaluation], num_episodes: int) -> Evaluation:
    """Join evaluations of consecutive episodes; the last one may have run more than requested."""
    first = parts[0]
    if len(parts) == 1 and len(first.returns) == num_episodes:
        return first
    returns, lengths = (
        np.concatenate(each)[:num_episodes]
        for each in ([part.returns for part in parts], [part.lengths for part in parts])
    )
    searches = [part.search for part in parts if part.search is not None]
    if len(searches) < len(parts):
        return Evaluation(first.policy, first.seed, returns, lengths)
    columns = {name: [getattr(each, name) for each in searches] for name in SearchResults._fields if name != "paths"}
    joined = {name: np.concatenate(each)[:num_episodes] for name, each in columns.items() if each[0] is not None}
    longest = max(len(each.paths) for each in searches)
    paths = [np.pad(each.paths, ((0, longest - len(each.paths)), (0, 0), (0, 0)), "edge") for each in searches]
    results = SearchResults(paths=np.concatenate(paths, 1)[:, :num_episodes], **joined)
    return Evaluation(first.policy, first.seed, returns, lengths, results)


def _time_figures(times: SearchTimes) -> dict[str, Any]:
    """The mean time, given that the source is found, with its standard error; and quantiles of the distribution."""
    steps = times.steps[~np.isnan(times.steps)]
    if not steps.size:
        return {"steps": None, "standard_error": None, "not_found": 1.0, "step_quantiles": None}
    error = float(steps.std() / len(steps) ** 0.5)
    mean = float(np.arange(len(times.found)) @ times.found / times.found.sum())
    cumulative = np.cumsum(times.found)
    quantiles = [int(np.argmax(cumulative >= q)) if cumulative[-1] >= q else None for q in QUANTILES]
    return {
        "steps": Interval(mean, mean - 1.96 * error, mean + 1.96 * error),
        "standard_error": error,
        "not_found": float(times.not_found.mean()),
        "step_quantiles": dict(zip(map(str, QUANTILES), quantiles, strict=True)),
    }


def _no_probe(_note: Any, _state: Any, _timestep: Any) -> tuple[()]:
    """Collects nothing: the environment has no source to find."""
    return ()


def evaluate_episodes(
    name: str,
    runner: EpisodeRunner,
    policy: Policy,
    seed: int,
    num_episodes: int,
    max_steps: int = 1000,
    on_progress: Callable[[int], None] = lambda _done: None,
) -> Evaluation:
    """Run any policy, local or remote, one episode at a time, with at most `max_steps` steps each."""
    episodes: list[list[StepOutcome]] = []
    stepped, text = SteppedPolicy(policy, runner.pure), observes_text(policy)
    for number in range(num_episodes):
        episodes.append(_run_episode(runner, stepped, text, seed + number, max_steps))
        on_progress(number + 1)
    returns = np.array([sum(outcome.reward for outcome in outcomes) for outcomes in episodes])
    lengths = np.array([len(outcomes) - 1 for outcomes in episodes])
    if any(outcome.xy is None for outcomes in episodes for outcome in outcomes):
        return Evaluation(name, seed, returns, lengths)
    found = np.array([outcomes[-1].found for outcomes in episodes])
    longest = lengths.max() + 1
    paths = np.array([[outcomes[min(k, len(outcomes) - 1)].xy for outcomes in episodes] for k in range(longest)], float)
    return Evaluation(name, seed, returns, lengths, SearchResults(found, _path_efficiency(paths), paths))


def _run_episode(
    runner: EpisodeRunner, policy: SteppedPolicy, text: bool, seed: int, max_steps: int
) -> list[StepOutcome]:
    """One episode; with `text`, the policy observes texts and acts by texts."""
    outcome = runner.reset(seed)
    policy.reset(seed)
    outcomes, refused = [outcome], 0
    while not outcome.done and len(outcomes) <= max_steps and refused < MAX_REFUSED:
        if text:
            hint = "" if outcome.error is None else f"That was no action: {outcome.error}\n"
            outcome = runner.step_text(policy.act(hint + runner.text()))
        else:
            outcome = runner.step(policy.act(outcome.obs))
        refused = 0 if outcome.error is None else refused + 1
        if not refused:
            outcomes.append(outcome)
    return outcomes


def _path_efficiency(paths: NDArray[Any]) -> NDArray[Any]:
    length = np.linalg.norm(np.diff(paths, axis=0), axis=-1).sum(0)
    return np.linalg.norm(paths[-1] - paths[0], axis=-1) / np.maximum(length, 1e-9)


def wilson_interval(hits: NDArray[Any]) -> Interval:
    """A rate with Wilson's interval, which, unlike a bootstrap, has a width when all or none succeed."""
    rate = float(np.mean(hits))
    return Interval(rate, *rate_interval(rate, len(hits)))


def bootstrap_interval(values: NDArray[Any]) -> Interval | None:
    """A mean with its bootstrap percentile interval; None without values."""
    if not values.size:
        return None
    draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[draws].mean(1), ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Interval(float(values.mean()), float(low), float(high))
