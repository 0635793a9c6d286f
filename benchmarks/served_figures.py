"""Other figures of serving: batches, forks, idle sessions, and the import of the client."""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import load
from benchmarks.measure import RESULTS, processor, progress
from benchmarks.peers import ROOT, python_of
from benchmarks.served import Server, free_port, running, store
from benchmarks.table import figures_as_text
from tropism.client import Client, VectorClient

BATCH, BATCH_STEPS = 1_024, 500
FORKS = 200
SESSIONS = 1_000

IMPORTING = """
import time
before = time.process_time()
{}
taken = time.process_time() - before
print(taken, 4096 * int(open("/proc/self/statm").read().split()[1]))
"""


@contextmanager
def cartpole() -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "tropism", "serve", "CartPole-v1", "--port", str(port)]
    with running("tropism", command, port, "/ws") as server:
        yield server


def batch_rate(server: Server, repeats: int) -> list[float]:
    """Steps per second of a batch over one socket; all values of the replies are summed."""
    rng, rates = np.random.default_rng(0), list[float]()
    with VectorClient(f"http://127.0.0.1:{server.port}", BATCH, seed=0) as client:
        for repeat in range(repeats + 1):  # the first is warm-up
            total, start = 0.0, time.perf_counter()
            for _ in range(BATCH_STEPS):
                reply = client.step(rng.integers(0, 2, BATCH))
                total += reply["reward"].sum() + reply["observation"].sum()
                total += reply["terminated"].sum() + reply["truncated"].sum()
            seconds = time.perf_counter() - start
            if not 0.8 < total / (BATCH * BATCH_STEPS) < 1.2:  # a reward of 1 per step, and little else
                raise AssertionError(f"the batch was not played: {total} in {BATCH_STEPS} steps")
            if repeat:
                rates.append(BATCH * BATCH_STEPS / seconds)
    return rates


def fork_times(server: Server) -> list[float]:
    """Milliseconds from the request for a fork to its reply, over the socket."""
    times: list[float] = []
    with Client(f"http://127.0.0.1:{server.port}") as client:
        client.reset(seed=0)
        client.step(1)
        for _ in range(FORKS):
            start = time.perf_counter()
            twin = client.fork()
            times.append(1e3 * (time.perf_counter() - start))
            twin.close()
    return times


def idle_bytes(server: Server) -> tuple[float, int]:
    """Memory per open session with its socket, and the number of threads added by all of them."""
    load.open_session(server.port, server.path).socket.close()  # the first session allocates what all share
    before, threads = load.resident_bytes(server.process), load.threads(server.process)
    sessions = [load.open_session(server.port, server.path) for _ in range(SESSIONS)]
    bytes_per_session = (load.resident_bytes(server.process) - before) / SESSIONS
    extra = load.threads(server.process) - threads
    for session in sessions:
        session.socket.close()
    return bytes_per_session, extra


def measure_import(python: str, statement: str, repeats: int) -> tuple[list[float], list[float]]:
    """CPU seconds of an import, and the resident bytes of the process after it."""
    command = [python, "-c", IMPORTING.format(statement)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    outputs = [subprocess.check_output(command, env=environment, text=True).split() for _ in range(repeats + 1)]
    return [float(seconds) for seconds, _ in outputs[1:]], [float(size) for _, size in outputs[1:]]


def row(what: str, unit: str, ours: list[float], target: float, theirs: list[float] | None = None) -> dict[str, Any]:
    found = statistics.median(ours)
    met = found >= target if unit == "steps/s" else found <= target
    return {
        "what": what,
        "unit": unit,
        "ours": found,
        "spread": [min(ours), max(ours)],
        "openenv": None if theirs is None else statistics.median(theirs),
        "target": target,
        "met": met,
    }


def measure(repeats: int) -> list[dict[str, Any]]:
    with cartpole() as server:
        progress("batch")
        batch = batch_rate(server, repeats)
        progress("fork")
        forks = fork_times(server)
        progress("idle sessions")
        size, threads = idle_bytes(server)
    progress("imports")
    ours = measure_import(sys.executable, "from tropism.client import Client", repeats)
    theirs = measure_import(python_of("openenv"), "from openenv.core.generic_client import GenericEnvClient", repeats)
    megabytes = [[size / 2**20 for size in sizes] for sizes in (ours[1], theirs[1])]
    return [
        row(f"a batch of {BATCH:,} CartPoles on one socket", "steps/s", batch, 1e6),
        row("a fork of a CartPole session, request to reply", "ms", forks, 1),
        row("an idle CartPole session with its socket", "KB", [size / 1024], 20),
        row(f"threads of {SESSIONS:,} idle sessions", "threads", [threads], 0),
        row("import of the client, CPU", "s", ours[0], 0.2, theirs[0]),
        row("a process that has imported the client", "MB", megabytes[0], 40, megabytes[1]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    result = {
        "name": "served_figures",
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system(), "device": "cpu"},
        "versions": {"python": platform.python_version(), "tropism": version("tropism"), "openenv": "0.10.0"},
        "figures": measure(args.repeats),
    }
    store(result, args.results)
    print(figures_as_text(result))


if __name__ == "__main__":
    main()
