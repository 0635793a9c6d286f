"""Evaluation: run every policy on the same seeded episodes and report means with confidence intervals.

Pure policies run compiled, in batches; others run one episode at a time, in a local or remote session.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tropism.core.environment import Environment
from tropism.core.native.choice import EngineName, check_engine
from tropism.core.rollout.episodes import MAX_STEPS, run_episodes
from tropism.core.rollout.policy import Policy, observes_text
from tropism.core.rollout.stepped import SteppedPolicy
from tropism.core.search_task import SearchTask, SearchTimes, TimedSearch, rate_interval
from tropism.core.session.session import Session
from tropism.errors import ValidationError
from tropism.train.runner import EpisodeRunner, LocalRunner, StepOutcome

RESAMPLES = 2000
LEVEL = 0.95
MAX_BATCH = 1024  # episodes that run at once
QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.99)  # of search times
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
        }


def evaluate(
    name: str,
    env: Environment,
    params: Any,
    policy: Policy,
    seed: int,
    num_episodes: int,
    on_progress: Callable[[int], None] = lambda _done: None,
    *,
    engine: EngineName = "auto",
) -> Evaluation:
    """Run a pure policy in a pure environment, compiled, in batches; `on_progress` is called after each batch.

    With `engine="native"`, episodes run one at a time in a native session, with the same results: a policy of JAX's
    operations then costs a dispatch per step, so `auto` and `xla` run the whole batch on XLA.
    """
    check_engine(engine)
    params = env.evaluation_params(params)
    if engine == "native":
        return _evaluate_natively(name, env, params, policy, seed, num_episodes, on_progress)
    if isinstance(env, TimedSearch):  # it has batches of its own
        return _evaluate_batch(name, env, params, policy, seed, num_episodes)
    size = math.ceil(num_episodes / num_batches(num_episodes))  # equal batches share one compilation
    batches: list[Evaluation] = []
    for done in range(0, num_episodes, size):
        batches.append(_evaluate_batch(name, env, params, policy, seed + done, size))
        on_progress(min(done + size, num_episodes))
    return batches[0] if len(batches) == 1 else _concatenate(batches, num_episodes)


def _evaluate_natively(
    name: str,
    env: Environment,
    params: Any,
    policy: Policy,
    seed: int,
    num_episodes: int,
    on_progress: Callable[[int], None],
) -> Evaluation:
    if isinstance(env, TimedSearch):
        raise ValidationError("engine", "native", "auto or xla", "search times are computed from beliefs, on XLA")
    with Session(env, params, engine="native") as session:
        return evaluate_episodes(name, LocalRunner(session), policy, seed, num_episodes, MAX_STEPS, on_progress)


def num_batches(num_episodes: int) -> int:
    return math.ceil(num_episodes / MAX_BATCH)


def _evaluate_batch(
    name: str, env: Environment, params: Any, policy: Policy, seed: int, num_episodes: int
) -> Evaluation:
    if isinstance(env, TimedSearch):
        times = env.search_times(policy, seed, num_episodes, params)
        return Evaluation(name, seed, times.steps, times.steps, times=times)
    if isinstance(env, SearchTask):
        outcome = env.search(policy, seed, num_episodes, params)
        results = SearchResults(*(np.asarray(each) for each in (outcome.found, outcome.efficiency, outcome.path)))
        return Evaluation(name, seed, np.asarray(outcome.reward), np.asarray(outcome.steps), results)
    done = run_episodes(env, policy, seed, num_episodes, params, _no_probe)
    return Evaluation(name, seed, np.asarray(done.reward), np.asarray(done.steps))


def _concatenate(batches: list[Evaluation], num_episodes: int) -> Evaluation:
    """Join batches; the last one may have run more episodes than requested."""
    returns, lengths = (
        np.concatenate(each)[:num_episodes]
        for each in ([batch.returns for batch in batches], [batch.lengths for batch in batches])
    )
    searches = [batch.search for batch in batches if batch.search is not None]
    if not searches:
        return Evaluation(batches[0].policy, batches[0].seed, returns, lengths)
    found, efficiency = (np.concatenate([each[i] for each in searches])[:num_episodes] for i in (0, 1))
    paths = np.concatenate([each.paths for each in searches], 1)[:, :num_episodes]
    return Evaluation(batches[0].policy, batches[0].seed, returns, lengths, SearchResults(found, efficiency, paths))


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
