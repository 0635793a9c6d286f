"""Compare this checkout with another one: `python -m benchmarks.versions PATH`, such as a worktree of an older commit.

Both run in turns with the libraries installed here. A ratio above 1 means that this checkout is faster.
"""

import argparse
import os
import statistics
from contextlib import ExitStack
from pathlib import Path

from benchmarks.comparison import Comparison
from benchmarks.measure import Contender, Effort, prepare, run_interleaved
from benchmarks.peers import ROOT
from benchmarks.plume import PLUME
from benchmarks.process import Worker
from benchmarks.rollout import ROLLOUT
from benchmarks.served import free_port, measure, running, serve_command
from benchmarks.single import SINGLE
from benchmarks.vector import VECTOR

SERVED_SIZES = (1, 16, 64)
TOLERANCE = 0.9


def print_ratio(name: str, ratios: list[float]) -> float:
    ratio = statistics.median(ratios)
    print(f"{name:32} {ratio:5.2f}  ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
    return ratio


def compare_compiled(comparison: Comparison, size: int, other: Path, effort: Effort) -> float:
    with ExitStack() as stack:
        contenders: list[Contender] = []
        for label, checkout in (("here", ROOT), ("other", other)):
            worker = stack.enter_context(Worker("tropism", comparison, checkout))
            contenders.append(Contender(label, worker, prepare(worker, comparison, comparison.case, size, effort)))
        values = run_interleaved(comparison, size, contenders, effort.repeats)
    pairs = zip(values["here"], values["other"], strict=True)
    rates = comparison.unit == "steps/s"
    return print_ratio(f"{comparison.name} {size:,}", [a / b if rates else b / a for a, b in pairs])


def compare_served(size: int, other: Path, effort: Effort) -> float:
    here, there = free_port(), free_port()
    path = "/envs/Echo-v0/ws"
    with (
        running("here", serve_command(here), here, path) as first,
        running("other", serve_command(there), there, path, other) as second,
    ):
        ours, theirs = measure((first, second), size, effort.repeats, effort.seconds)
    rate = print_ratio(f"served {size:,}", [a / b for a, b in zip(ours.rates, theirs.rates, strict=True)])
    time = print_ratio(f"served {size:,}, CPU time", [b / a for a, b in zip(ours.times, theirs.times, strict=True)])
    return min(rate, time)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the root of the other checkout")
    parser.add_argument("--repeats", type=int, default=Effort.repeats)
    parser.add_argument("--seconds", type=float, default=Effort.seconds)
    args = parser.parse_args()
    other, effort = args.other.resolve(), Effort(args.repeats, args.seconds)
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    ratios = [
        compare_compiled(comparison, size, other, effort)
        for comparison in (ROLLOUT, SINGLE, VECTOR, PLUME)
        for size in comparison.sizes
    ]
    ratios += [compare_served(size, other, effort) for size in SERVED_SIZES]
    slower = sum(ratio < TOLERANCE for ratio in ratios)
    print(f"{slower} of {len(ratios)} are more than 10 % slower")


if __name__ == "__main__":
    main()
