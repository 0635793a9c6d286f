"""Train the agents of docs/train.md and update its figures and pictures. Run by hand: it takes minutes."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tropism.core.registry import make, presets
from tropism.drawing import plots
from tropism.plume.strategies.catalog import NAMES
from tropism.train.evaluation import Evaluation, Interval, evaluate, wilson_interval
from tropism.train.policies import load, resolve_policy
from tropism.train.ppo import PPOConfig
from tropism.train.run import CHECKPOINT, train
from tropism.train.training import Training

HERE = Path(__file__).parent
PAGE = HERE / "train.md"
BEGIN, END = "<!-- figures: docs/train.py -->", "<!-- end of figures -->"
SEARCH, SEEDS, EPISODES = "PlumeNavMeander-v0", 5, 512
CLASSICS = {"CartPole-v1": (20, 475.0), "Pendulum-v1": (20, -200.0)}


def train_preset(id: str, seeds: int, folder: Path) -> list[Any]:
    """Train agents with the preset; return their learning curve."""
    print(f"{id}: {seeds} agents", file=sys.stderr)
    training = Training(id, {}, {}, PPOConfig(**presets("ppo").get(id, {})), seed=0, seeds=seeds)
    return train(training, folder)[1]


def classic_row(id: str, seeds: int, target: float, folder: Path) -> str:
    """The table row of one task: every agent, evaluated on episodes that were not used in training."""
    history = train_preset(id, seeds, folder)
    plots.draw_learning_curve(id, history, HERE / "pictures" / f"train_{id}.png")
    env, params = make(id)
    means = [
        evaluate("", env, params, load(folder / CHECKPOINT, agent, greedy=True), 10_000, 64).returns.mean()
        for agent in range(seeds)
    ]
    reached = sum(mean >= target for mean in means)
    figures = f"{history[-1][0]:,} | {reached} of {seeds} reach {target:g} | {np.mean(means):.1f} | {min(means):.1f}"
    return f"| `{id}` | {figures} |"


def search(folder: Path) -> list[Evaluation]:
    """Evaluate the strategies and every agent on the same episodes."""
    history = train_preset(SEARCH, SEEDS, folder)
    plots.draw_learning_curve(SEARCH, history, HERE / "pictures" / "train_search.png")
    env, params = make(SEARCH)
    baselines: list[Any] = [(name, resolve_policy(name, env, params)) for name in ("random", *NAMES)]
    agents = [(f"agent {number}", load(folder / CHECKPOINT, number)) for number in range(SEEDS)]
    return [evaluate(name, env, params, policy, 10_000, EPISODES) for name, policy in (*baselines, *agents)]


def search_rows(evaluations: list[Evaluation]) -> list[str]:
    lines = ["| policy | found the source | steps to find it | path efficiency |", "|---|---|---|---|"]
    for each in evaluations:
        figures = each.summary()
        cells = (_cell(figures["success"], "{:.1%}"), _cell(figures["time_to_find"], "{:.1f}"))
        lines.append(f"| {each.policy} | {cells[0]} | {cells[1]} | {_cell(figures['path_efficiency'], '{:.2f}')} |")
    return lines


def _cell(interval: Interval | None, form: str) -> str:
    return "–" if interval is None else "{} ({} to {})".format(*(form.format(number) for number in interval))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = [classic_row(id, *target, Path(folder) / id) for id, target in CLASSICS.items()]
        evaluations = search(Path(folder) / SEARCH)
    successes = [wilson_interval(each.search.found) for each in evaluations if each.search is not None]
    best = max(success.high for success in successes[:-SEEDS])
    beat = sum(success.low > best for success in successes[-SEEDS:])
    verdict = f"{beat} of {SEEDS} agents beat every strategy, beyond their intervals"
    figures = [
        "| task | steps | agents | mean return | worst agent |",
        "|---|---|---|---|---|",
        *table,
        "",
        f"`{SEARCH}`, the same {EPISODES} episodes for each, 95 % intervals: {verdict}.",
        "",
        *search_rows(evaluations),
    ]
    page = PAGE.read_text()
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    PAGE.write_text(page[:start] + "\n" + "\n".join(figures) + "\n" + page[end:])
    print(verdict, file=sys.stderr)


if __name__ == "__main__":
    main()
