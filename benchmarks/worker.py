"""The child's side of a measurement: one process per library, driven by JSON lines.

Only the standard library is imported here: the process runs in the peer's own environment.
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
"""`run(num_steps, seed)` takes `num_steps` steps in every environment and returns the sum of all that was observed."""

Case = Callable[[int], Run]
"""`case(num_envs)` makes the environments."""


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # ours, run from the source tree
        return str(getattr(importlib.import_module(name), "__version__", "source"))


def tell_training(trained: Callable[..., tuple[int, LastEpisodes]], packages: Sequence[str]) -> None:
    """Train as the command line asks, and print how long that took, its steps, and how well its last episodes went."""
    versions = {name: package_version(name) for name in packages}
    start = time.perf_counter()
    steps, episodes = trained(**json.loads(sys.argv[1]))
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "steps": steps, "mean": episodes.mean, "versions": versions}))


def timed(run: Run, num_steps: int, seed: int) -> tuple[float, float]:
    start = time.perf_counter()
    total = run(num_steps, seed)
    return time.perf_counter() - start, total


def calibrated(run: Run, seconds: float) -> int:
    """The number of steps, a power of two, that takes about `seconds`; leaves `run` compiled for it."""
    num_steps = 8
    while True:
        run(num_steps, 0)
        elapsed, _ = timed(run, num_steps, 1)
        doublings = round(math.log2(seconds / elapsed))
        if doublings < 1:
            return num_steps
        num_steps *= 2 ** min(doublings, 4)


def check_consumed(total: float, steps: int, low: float, high: float) -> None:
    if not low <= total / steps <= high:
        raise ValueError(f"reward + flags + observations average {total / steps:.3f} a step")


def serve(cases: Mapping[str, Case], packages: Sequence[str], device: Callable[[], str]) -> None:
    """Answer `prepare` and `run` requests until the parent closes the pipe."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not mix with the answers
    run: Run | None = None
    consumed: tuple[float, float] = (0.0, 0.0)
    num_envs = num_steps = repeat = 0
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if request["do"] == "prepare":
            num_envs = int(request["num_envs"])
            consumed = request["consumed"]
            run = cases[request["case"]](num_envs)
            num_steps = calibrated(run, float(request["seconds"]))
            versions = {name: package_version(name) for name in packages}
            answer = {"num_steps": num_steps, "versions": versions, "device": device()}
        else:
            assert run is not None, "prepare comes first"
            repeat += 1
            elapsed, total = timed(run, num_steps, repeat + 1)
            check_consumed(total, num_envs * num_steps, *consumed)
            answer = {"seconds": elapsed, "steps": num_envs * num_steps}
        print(json.dumps(answer), file=answers, flush=True)
