"""Load on the sandbox of a running server: steps of other sessions beside busy ones, memory of idle sessions, and
processes left after the server is killed."""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.measure import processor
from tropism.client import Client
from tropism.errors import TropismError

HOGS, OTHERS, IDLE = 32, 4, 100  # sessions
TARGET_P95 = 250.0  # ms
PAUSE = 0.05  # seconds between two steps of another session
WARM_UP = 3.0  # seconds until every session has begun
AFTER_KILL = 0.1  # seconds
LEFT = f"left {AFTER_KILL} s after kill -9"


@contextmanager
def served(tier: str) -> Generator[tuple[str, int]]:
    """The URL and process id of a server whose steps may take one second."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["serve", "Coding-v0", "--port", "0", "--journal", f"{folder}/journal"]
        arguments = ["--arg", f"tier={tier}", "--arg", "wall=1", "--arg", "cpu=1", "--arg", "max_steps=100000"]
        command = [sys.executable, "-c", "from tropism.cli import main; main()", *words, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
            assert server.stdout is not None
            url = next(found[0] for line in server.stdout if (found := re.search(r"http://[\w.:]+", line)))
            threading.Thread(target=server.stdout.read, daemon=True).start()
            try:
                yield url, server.pid
            finally:
                server.kill()


def descendants(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            with suppress(OSError):
                children = [int(child) for child in task.read_text().split()]
                found += children
                waiting += children
    return found


def memory(pid: int) -> float:
    """MiB used by a process, shared pages divided by the number of processes that share them."""
    with suppress(OSError):
        found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0
    return 0.0


def keep_busy(url: str, stop: threading.Event) -> None:
    with suppress(TropismError, OSError), Client(url) as client:
        client.reset(seed=0)
        while not stop.is_set():
            client.step({"code": "while True: pass"})


def time_steps(url: str, stop: threading.Event, durations: list[float]) -> None:
    with suppress(TropismError, OSError), Client(url) as client:
        client.reset(seed=0)
        client.step({"code": "x = 0"})
        while not stop.is_set():
            start = time.perf_counter()
            client.step({"code": "x += 1"})
            durations.append((time.perf_counter() - start) * 1e3)
            time.sleep(PAUSE)


def time_health(url: str, stop: threading.Event, durations: list[float]) -> None:
    while not stop.is_set():
        start = time.perf_counter()
        with urllib.request.urlopen(f"{url}/health") as reply:
            json.load(reply)
        durations.append((time.perf_counter() - start) * 1e3)
        time.sleep(PAUSE)


def measure_hogs(tier: str, seconds: float) -> dict[str, float]:
    stop = threading.Event()
    steps: list[float] = []
    health: list[float] = []
    with served(tier) as (url, pid):
        for target, arguments in (
            *[(keep_busy, ())] * HOGS,
            *[(time_steps, (steps,))] * OTHERS,
            (time_health, (health,)),
        ):
            threading.Thread(target=target, args=(url, stop, *arguments), daemon=True).start()
        time.sleep(WARM_UP)
        del steps[:], health[:]
        time.sleep(seconds)
        stop.set()
        children = descendants(pid)
        os.kill(pid, signal.SIGKILL)
        time.sleep(AFTER_KILL)
        left = sum(map(is_running, children))
    return {
        f"step p50 ms beside {HOGS} hogs": statistics.median(steps),
        "p95": statistics.quantiles(steps, n=20)[-1],
        "max": max(steps),
        "health p95 ms": statistics.quantiles(health, n=20)[-1],
        "health max": max(health),
        "processes": len(children),
        LEFT: left,
    }


def measure_idle(tier: str) -> dict[str, float]:
    with served(tier) as (url, pid), ExitStack() as clients:
        empty = sum(map(memory, [pid, *descendants(pid)]))
        for _ in range(IDLE):
            client = clients.enter_context(Client(url))
            client.reset(seed=0)
            client.step({"code": "x = 1"})
        time.sleep(1)
        used = sum(map(memory, [pid, *descendants(pid)])) - empty
    return {f"MiB of {IDLE} idle sessions": used}


def is_running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiers", nargs="+", default=["A", "B"])
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    print(f"{processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    met = True
    for tier in options.tiers:
        row = measure_hogs(tier, options.seconds) | measure_idle(tier)
        print(f"tier {tier}: " + ", ".join(f"{name} {value:.1f}" for name, value in row.items()), flush=True)
        met = met and row["p95"] <= TARGET_P95 and row[LEFT] == 0
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
