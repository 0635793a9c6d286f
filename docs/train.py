"""Draw the learning curves of docs/train.md; `--train` also trains agents in classic tasks, which takes minutes."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tropism.core.registry import make, presets
from tropism.drawing import plots
from tropism.train.evaluation import evaluate
from tropism.train.policies import load
from tropism.train.ppo import PPOConfig
from tropism.train.run import CHECKPOINT, train
from tropism.train.training import Training

HERE = Path(__file__).parent
PAGE = HERE / "train.md"
BEGIN, END = "<!-- figures: docs/train.py -->", "<!-- end of figures -->"
SEARCHES = HERE.parent / "benchmarks" / "results" / "search_learning.json"
DIFFICULTY = "sparse"  # of the demo
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


def draw_search(result: dict[str, Any]) -> None:
    """Draw the learning curves of the agents in the demo's plume, stored by benchmarks.search_learning."""
    curves = [agent["curve"] for agent in result["tasks"][DIFFICULTY]["agents"].values()]
    steps = [row[0] for row in max(curves, key=len)]
    returns = [dict(curve) for curve in curves]
    history = [[step, [each.get(step) for each in returns]] for step in steps]
    title = f"{result['id']}, difficulty {DIFFICULTY}"
    plots.draw_learning_curve(title, history, HERE / "pictures" / "train_search.png")


def main() -> None:
    draw_search(json.loads(SEARCHES.read_text()))
    if "--train" not in sys.argv:
        return
    with tempfile.TemporaryDirectory() as folder:
        table = [classic_row(id, *target, Path(folder) / id) for id, target in CLASSICS.items()]
    figures = ["| task | steps | agents | mean return | worst agent |", "|---|---|---|---|---|", *table]
    page = PAGE.read_text()
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    PAGE.write_text(page[:start] + "\n" + "\n".join(figures) + "\n" + page[end:])


if __name__ == "__main__":
    main()
