"""The child's side of a measurement: one process per library, controlled by JSON lines.

Imports only the standard library, because it runs in the environment of the peer.
"""

import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.last_episodes import LastEpisodes

Run = Callable[[int, int], float]
"""`run(num_steps, seed)` steps every environment and returns the sum of all observations, rewards and flags."""

Case = Callable[[int], Run]
"""`case(num_envs)` creates the environments."""


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # ours, run from the source tree
        return str(getattr(importlib.import_module(name), "__version__", "source"))


def print_training(train: Callable[..., tuple[int, LastEpisodes]], packages: Sequence[str]) -> None:
    """Train with the arguments of the command line; print the duration, the steps and the mean of the last episodes."""
    versions = {name: package_version(name) for name in packages}
    start = time.perf_counter()
    steps, episodes = train(**json.loads(sys.argv[1]))
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "steps": steps, "mean": episodes.mean, "versions": versions}))


def time_run(run: Run, num_steps: int, seed: int) -> tuple[float, float]:
    start = time.perf_counter()
    total = run(num_steps, seed)
    return time.perf_counter() - start, total


def calibrate(run: Run, seconds: float) -> int:
    """The number of steps, a power of two, that takes about `seconds`; `run` is then compiled for it."""
    num_steps = 8
    while True:
        run(num_steps, 0)
        elapsed, _ = time_run(run, num_steps, 1)
        doublings = round(math.log2(seconds / elapsed))
        if doublings < 1:
            return num_steps
        num_steps *= 2 ** min(doublings, 4)


def check_mean(total: float, steps: int, low: float, high: float) -> None:
    if not low <= total / steps <= high:
        raise ValueError(f"reward + flags + observations average {total / steps:.3f} per step")


def serve(cases: Mapping[str, Case], packages: Sequence[str], device: Callable[[], str]) -> None:
    """Reply to `prepare` and `run` requests until the parent closes the pipe."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of a library must not mix with the replies
    run: Run | None = None
    mean_range: tuple[float, float] = (0.0, 0.0)
    num_envs = num_steps = repeat = 0
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if request["do"] == "prepare":
            num_envs = int(request["num_envs"])
            mean_range = request["mean_range"]
            run = cases[request["case"]](num_envs)
            num_steps = calibrate(run, float(request["seconds"]))
            versions = {name: package_version(name) for name in packages}
            reply = {"num_steps": num_steps, "versions": versions, "device": device()}
        else:
            assert run is not None, "prepare comes first"
            repeat += 1
            elapsed, total = time_run(run, num_steps, repeat + 1)
            check_mean(total, num_envs * num_steps, *mean_range)
            reply = {"seconds": elapsed, "steps": num_envs * num_steps}
        print(json.dumps(reply), file=replies, flush=True)
