"""Train recurrent agents on PlumeNavSingh-v0 and run the assay of Singh et al. on them; made for an accelerator.

python -m benchmarks.assay --seeds 4 --steps 20000000 --out runs/singh
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from tropism.envs.plume.assay import CONDITIONS, run_assay
from tropism.train.policies import load
from tropism.train.ppo import PPOConfig
from tropism.train.run import CHECKPOINT, train_in_chunks
from tropism.train.training import Training

RESULTS = Path(__file__).parent / "results" / "assay.json"
CONFIG: dict[str, Any] = {
    "recurrent": True,
    "num_envs": 512,
    "num_steps": 64,
    "epochs": 4,
    "learning_rate": 1e-3,
    "entropy": 0.003,
    "hidden": 64,
}


def train(seeds: int, steps: int, regime: str, out: Path, seconds: float) -> int:
    """Train until `steps` steps per agent or `seconds` are over; the steps that were taken."""
    training = Training("PlumeNavSingh-v0", {"regime": regime}, {}, PPOConfig(**CONFIG, total_steps=steps), 0, seeds)
    start, done = time.perf_counter(), 0
    for report, _ in train_in_chunks(training, out):
        done = report.steps
        returns = ", ".join("-" if value is None else f"{value:.1f}" for value in report.returns)
        print(f"{time.perf_counter() - start:.0f} s, {done:,} steps, returns {returns}", flush=True)
        if time.perf_counter() - start > seconds:
            break
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20_000_000)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--regime", default="switch_many")
    parser.add_argument("--out", type=Path, default=Path("runs/singh"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    steps = train(args.seeds, args.steps, args.regime, args.out, args.seconds)
    result: dict[str, Any] = {"regime": args.regime, "steps": steps, "found": {}}
    for condition in CONDITIONS:
        agents = [load(args.out / CHECKPOINT, number, greedy=True) for number in range(args.seeds)]
        counts = [int(np.sum(run_assay(agent, condition).found)) for agent in agents]
        result["found"][condition.name] = {"agents": counts, "published": list(condition.published)}
        print(condition.name, counts, condition.published, flush=True)
        args.results.parent.mkdir(parents=True, exist_ok=True)
        args.results.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
