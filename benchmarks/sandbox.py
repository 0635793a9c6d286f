"""Durations of `Coding-v0` steps by tier: first steps, later steps, and consecutive episodes."""

import argparse
import statistics
import time
from typing import Any

from benchmarks.measure import processor
from tropism import Session, make
from tropism.errors import TropismError

FIRST_STEP, LATER_STEP = 5.0, 1.0  # ms: targets for the median
TIERS = ("A", "B")


def milliseconds(call: Any, *arguments: Any, **keywords: Any) -> float:
    start = time.perf_counter()
    call(*arguments, **keywords)
    return (time.perf_counter() - start) * 1e3


def measure(tier: str, episodes: int, steps: int) -> dict[str, float]:
    session = Session(*make("Coding-v0", tier=tier, max_steps=steps + 1))
    first: list[float] = []
    later: list[float] = []
    for seed in range(episodes):
        session.reset(seed=seed)
        time.sleep(0.2)  # an agent would think here; the worker pool refills meanwhile
        first.append(milliseconds(session.step, {"code": "x = 1"}))
        later += [milliseconds(session.step, {"code": "x += 1"}) for _ in range(steps)]
    start = time.perf_counter()
    for seed in range(episodes):
        session.reset(seed=seed)
        session.step({"code": "x = 1"})
    rate = episodes / (time.perf_counter() - start)
    session.close()
    return {
        "first step p50 ms": statistics.median(first),
        "first step p95 ms": statistics.quantiles(first, n=20)[-1],
        "later step p50 ms": statistics.median(later),
        "later step p95 ms": statistics.quantiles(later, n=20)[-1],
        "episodes/s back to back": rate,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    print(processor())
    met = True
    for tier in TIERS:
        try:
            row = measure(tier, options.episodes, options.steps)
        except TropismError as error:
            print(f"tier {tier}: {error}")
            continue
        print(f"tier {tier}: " + ", ".join(f"{name} {value:.2f}" for name, value in row.items()))
        met = met and row["first step p50 ms"] <= FIRST_STEP and row["later step p50 ms"] <= LATER_STEP
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
