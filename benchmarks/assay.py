"""Train recurrent agents on PlumeNavSingh-v0 and run the assay of Singh et al. on them and on strategies.

The agents learn in realisations of plumes with different winds and numbers of puffs (`benchmarks.assay_training`); the
assay has other ones.

    python -m benchmarks.assay --seeds 4 --steps 20000000 --out runs/singh
    python -m benchmarks.assay --out runs/singh --steps 0       # only the assay, of agents trained before
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.assay_training import Compressed
from benchmarks.measure import RESULTS
from tropism.core.registry import presets
from tropism.envs.plume.assay import CONDITIONS, Condition, assay_env, run_assay
from tropism.train.checkpoint import load_steps, load_training
from tropism.train.policies import load, resolve_policy
from tropism.train.ppo import PPOConfig
from tropism.train.run import CHECKPOINT, train_in_chunks
from tropism.train.training import Training

ID = "PlumeNavSingh-v0"
STRATEGIES = ("random", "cast-and-surge", "counter-turning")
REALISATIONS = (0, 1, 2, 7)  # seeds of the plumes; those of training have others, but 7 was watched during training
TASK = "benchmarks.assay_training:VariedPlumes"


def train(seeds: int, steps: int, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    training = Training(TASK, {}, {}, replace(PPOConfig(**presets("ppo")[ID]), total_steps=steps), 0, seeds)
    for report, _ in train_in_chunks(training, out):
        print(f"{report.steps:,} steps, mean return {report.mean}", flush=True)


def count_successes(condition: Condition, agents: Path) -> dict[str, list[int]]:
    """The flights of 240 that reach the source, by policy, in each realisation of the plume."""
    env = assay_env(condition)
    policies: dict[str, Any] = {
        name: resolve_policy(name, env, env.default_params(), greedy=True) for name in STRATEGIES
    }
    for number in range(load_training(agents / CHECKPOINT).seeds):
        policies[f"agent {number}"] = Compressed(load(agents / CHECKPOINT, number, greedy=True))
    return {
        name: [int(np.sum(run_assay(policy, condition, seed).found)) for seed in REALISATIONS]
        for name, policy in policies.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=presets("ppo")[ID]["total_steps"])
    parser.add_argument("--out", type=Path, default=Path("runs/singh"))
    parser.add_argument("--results", type=Path, default=RESULTS / "assay.json")
    args = parser.parse_args()
    if args.steps:
        train(args.seeds, args.steps, args.out)
    found: dict[str, Any] = {}
    for condition in CONDITIONS:
        found[condition.name] = {"ours": count_successes(condition, args.out), "published": condition.published}
        print(condition.name, found[condition.name], flush=True)
    steps = load_steps(args.out / CHECKPOINT)
    caption = (
        f"Flights of 240 that reach the source, in {len(REALISATIONS)} realisations of each plume. Agents were trained "
        f"for {steps:,} steps; the published range is over agents, in one realisation."
    )
    args.results.write_text(json.dumps({"found": found, "caption": caption}, indent=1) + "\n")


if __name__ == "__main__":
    main()
