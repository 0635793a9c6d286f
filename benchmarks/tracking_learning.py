"""Search times of trained networks beside their teacher, space-aware infotaxis, on the grid of 19 by 19 cells.

`python -m benchmarks.tracking_learning` evaluates the agents that come with the package and writes
`results/tracking_learning.json`; `--train NAME` first trains one of them and replaces its file.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tropism import make
from tropism.core.registry import presets
from tropism.train.checkpoint import save_policy
from tropism.train.evaluation import evaluate
from tropism.train.policies import AGENTS, SUFFIX, load, resolve_policy
from tropism.train.ppo import PPOConfig
from tropism.train.run import CHECKPOINT, TrainingReport, train
from tropism.train.training import Training

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "tracking_learning.json"
ID, TEACHER = "SourceTracking19x19-v0", "space-aware-infotaxis"
NETWORKS = {"belief-network": "BeliefNetwork", "history-network": "HistoryNetwork"}


def train_agent(name: str, folder: Path) -> None:
    numbers = {key: value for key, value in presets("ppo")[ID].items() if key != "recurrent"}  # of the built-in network
    config = PPOConfig(**numbers, normalize=False, teacher=TEACHER, teacher_share=1.0)
    network = f"tropism.train.belief_network:{NETWORKS[name]}"
    training = Training(ID, {"observation": "belief"}, {}, config, seed=0, seeds=1, network=network)
    start = time.process_time()

    def show(report: TrainingReport) -> None:
        print(f"{report.steps:,} steps: {report.mean}, {time.process_time() - start:.0f} s", flush=True)

    train(training, folder, show)
    save_policy(AGENTS / f"{name}{SUFFIX}", training, load(folder / CHECKPOINT))


def measure(searches: int, seed: int) -> list[dict[str, Any]]:
    env, params = make(ID, draw_source=False, observation="belief")
    rows, first = list[dict[str, Any]](), None
    for name in (TEACHER, *NETWORKS):
        result = evaluate(name, env, params, resolve_policy(name, env, params, greedy=True), seed, searches)
        figures, steps = result.summary(), np.asarray(result.returns)
        first = steps if first is None else first
        row = {"policy": name, "mean": figures["steps"].mean, "standard_error": figures["standard_error"]}
        rows.append({**row, **paired_difference(steps - first), "not_found": figures["not_found"]})
        print(rows[-1], flush=True)
    return rows


def paired_difference(difference: NDArray[Any]) -> dict[str, float]:
    """The mean of differences between searches with the same seed, and its standard error."""
    error = difference.std() / len(difference) ** 0.5
    return {"difference": float(difference.mean()), "difference_error": float(error)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--searches", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=10_000)
    parser.add_argument("--train", choices=NETWORKS)
    parser.add_argument("--out", type=Path, default=Path("runs/tracking"))
    options = parser.parse_args()
    if options.train is not None:
        train_agent(options.train, options.out / options.train)
        return
    rows = measure(options.searches, options.seed)
    RESULTS.write_text(json.dumps({"searches": options.searches, "seed": options.seed, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
