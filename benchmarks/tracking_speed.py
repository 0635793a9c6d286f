"""Steps per second of infotaxis: Tropism on one core, and otto, whose source is not on the package index.

    python -m benchmarks.tracking_speed --otto CHECKOUT

CHECKOUT is a clone of otto. Its steps are timed as its `evaluate.py` runs them, with an environment for each episode,
and once more with a single environment. Rounds of both libraries are interleaved; times are CPU times.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CASES = {"SourceTracking19x19-v0": (2, 1.0, 1.0), "SourceTracking53x53-v0": (2, 3.0, 2.0)}
LANES, STEPS = 128, 100


def otto_rate(numbers: tuple[int, float, float], seconds: float, new_environments: bool) -> float:
    """Steps per second of otto's infotaxis."""
    from otto.classes.heuristicpolicy import HeuristicPolicy  # pyright: ignore[reportMissingImports]
    from otto.classes.sourcetracking import SourceTracking  # pyright: ignore[reportMissingImports]

    env, steps, start = SourceTracking(*numbers), 0, time.process_time()
    while time.process_time() - start < seconds:
        env = SourceTracking(*numbers) if new_environments else env
        env.restart()
        policy, not_found, done = HeuristicPolicy(env, 0), 1.0, False
        while not_found > 1e-6 and not done and not env.agent_stuck:
            _, end, done = env.step(policy.choose_action(), quiet=True)
            not_found *= 1 - end
            steps += 1
    return steps / (time.process_time() - start)


def tropism_rounds(id: str, strategy: str = "infotaxis", lanes: int = LANES) -> Callable[[int], float]:
    """A function that runs searches without a source and returns steps per second of CPU time."""
    import jax

    from tropism import make, rollout

    env, params = make(id, draw_source=False, observation="belief")
    policy = env.strategies(params)[strategy]()

    def run(seed: int) -> Any:
        result = rollout(env, policy, seed, lanes, STEPS, params=params, collect=False)
        return jax.block_until_ready(result.episodes.total_return)

    run(0)

    def measure(seed: int) -> float:
        start = time.process_time()
        run(seed)
        return lanes * STEPS / (time.process_time() - start)

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--otto", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="CPU time of otto in each round")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # XLA uses a second core, and waits for it, if there is one
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    sys.path.insert(0, str(options.otto))
    rows: list[dict[str, Any]] = []
    for id, numbers in CASES.items():
        ours, theirs, reused, measure = [], [], [], tropism_rounds(id)
        for number in range(1, options.rounds + 1):
            ours.append(measure(number))
            theirs.append(otto_rate(numbers, options.seconds, True))
            reused.append(otto_rate(numbers, options.seconds, False))
        rates = [statistics.median(each) for each in (ours, theirs, reused)]
        rows.append({"id": id, "tropism": rates[0], "otto": rates[1], "otto, one environment": rates[2]})
        print(
            f"{id}: Tropism {rates[0]:,.0f} steps/s, otto {rates[1]:,.0f} ({rates[0] / rates[1]:.0f}×), "
            f"otto with one environment {rates[2]:,.0f} ({rates[0] / rates[2]:.0f}×)",
            flush=True,
        )
    (options.results / "tracking_speed.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
