"""Overhead and speed-up of the executors of `tropism.scale` with one and two workers, against the serial run.

    python -m benchmarks.scale

A worker's first shard imports and compiles, so it counts as start-up. The rate is that of the shards after it, and the
speed-up is this rate over that of the serial run; with one worker its distance from 1 is the overhead.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.measure import RESULTS, processor
from tropism import make, random_policy
from tropism.core.rollout.policy import HostFunctionPolicy
from tropism.scale import Processes, Ray, Threads
from tropism.scale.evaluation import EvaluationJob
from tropism.scale.executor import Executor, Serial
from tropism.scale.shards import num_cores

COLUMNS = ("episodes", "executor", "workers", "first result", "episodes/s", "speed-up")
WORKERS = (1, 2)


def alternate(obs: Any) -> int:
    """A policy on the host: a Python function, which holds the interpreter's lock."""
    return int(obs[2] > 0)


def jobs() -> dict[str, tuple[EvaluationJob, Sequence[range]]]:
    """A compiled evaluation and one that runs in Python, with the shards to run."""
    meander, cartpole = make("PlumeNavMeander-v0"), make("CartPole-v1")
    compiled = EvaluationJob("random", *meander, random_policy(*meander), 0, 1000)
    host = EvaluationJob("alternate", *cartpole, HostFunctionPolicy(alternate), 0, 1000)
    return {
        "compiled, PlumeNavMeander-v0": (compiled, [range(1024 * i, 1024 * (i + 1)) for i in range(60)]),
        "in Python, CartPole-v1": (host, [range(64 * i, 64 * (i + 1)) for i in range(96)]),
    }


def measure(executor: Executor, job: EvaluationJob, shards: Sequence[range], workers: int) -> tuple[float, float]:
    """Seconds until the first result, and episodes per second after the first results of all workers."""
    start, times = time.perf_counter(), list[float]()
    for _ in executor.run(job, shards):
        times.append(time.perf_counter())
    episodes = sum(map(len, shards[workers:]))
    return times[0] - start, episodes / (times[-1] - times[workers - 1])


def executors() -> list[tuple[str, int, Executor]]:
    rows: list[tuple[str, int, Executor]] = [("serial", 1, Serial())]
    for workers in WORKERS:
        rows += [("threads", workers, Threads(workers)), ("processes", workers, Processes(workers))]
        rows.append(("ray", workers, Ray(workers=workers, num_cpus=max(WORKERS), include_dashboard=False)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats, rows, cells = parser.parse_args().repeats, executors(), list[list[str]]()
    load = os.getloadavg()[0]
    for label, (job, shards) in jobs().items():
        results: list[list[tuple[float, float]]] = [[] for _ in rows]
        for _ in range(repeats):
            for result, (_, workers, executor) in zip(results, rows, strict=True):
                result.append(measure(executor, job, shards, workers))
        for number, (name, workers, _) in enumerate(rows):
            ratios = [mine[1] / serial[1] for mine, serial in zip(results[number], results[0], strict=True)]
            first, rate = (statistics.median(each) for each in zip(*results[number], strict=True))
            cells.append(
                [label, name, str(workers), f"{first:.1f} s", f"{rate:,.0f}", f"{statistics.median(ratios):.2f}"]
            )
            print(*cells[-1], sep="  ", flush=True)
    for _, _, executor in reversed(rows):
        executor.close()
    machine = f"{processor()}, {num_cores()} cores; load average before the run {load:.1f}."
    caption = f"Medians of {repeats} interleaved repeats. {machine}"
    result = {"columns": COLUMNS, "cells": cells, "caption": caption}
    (RESULTS / "scale.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
