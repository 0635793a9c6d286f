"""Load on the sandbox of a running server: steps of other sessions beside busy ones, memory of idle sessions, and
processes left after the server is killed; and the duration of the attacks at start-up."""

import argparse
import ctypes
import json
import os
import platform
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
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS, processor
from benchmarks.table import figures_as_text
from tropism.client import Client
from tropism.errors import TropismError
from tropism.sandbox.doctor import STARTUP_ATTACKS, cached_report
from tropism.sandbox.pool import Tier

HOGS, OTHERS, IDLE = 32, 4, 100  # sessions
TARGET_P95 = 250.0  # ms
PAUSE = 0.05  # seconds between two steps of another session
WARM_UP = 3.0  # seconds until every session has begun
AFTER_KILL = 0.1  # seconds
KILLS = 3  # servers that are killed beside hogs; the worst one counts
SET_CHILD_SUBREAPER = 36  # prctl
TARGET_STARTUP = 2.0  # seconds


@contextmanager
def served(tier: Tier) -> Generator[tuple[str, int]]:
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
    """Without `pathlib`, which takes tens of milliseconds for the processes of a hundred sessions."""
    found, waiting = list[int](), [pid]
    while waiting:
        tasks = f"/proc/{waiting.pop()}/task"
        with suppress(OSError):
            for task in os.listdir(tasks):
                with open(f"{tasks}/{task}/children") as file:
                    children = [int(child) for child in file.read().split()]
                found += children
                waiting += children
    return found


def memory(pid: int) -> float:
    """MiB used by a process, shared pages divided by the number of processes that share them."""
    with suppress(OSError):
        found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0
    return 0.0


def keep_busy(url: str) -> None:
    with suppress(TropismError, OSError), Client(url) as client:
        client.reset(seed=0)
        while True:
            client.step({"code": "while True: pass"})


@contextmanager
def hogs(url: str) -> Generator[int]:
    """The id of a process whose clients are always busy: it can be stopped, as if it were on another machine."""
    command = [sys.executable, "-m", "benchmarks.sandbox_load", "--hogs", url]
    with subprocess.Popen(command) as clients:
        try:
            yield clients.pid
        finally:
            clients.kill()


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


def measure_hogs(tier: Tier, seconds: float) -> list[dict[str, Any]]:
    stop = threading.Event()
    steps: list[float] = []
    health: list[float] = []
    with served(tier) as (url, pid), hogs(url) as clients:
        jobs = (*[(time_steps, steps)] * OTHERS, (time_health, health))
        threads = [threading.Thread(target=target, args=(url, stop, times), daemon=True) for target, times in jobs]
        for thread in threads:
            thread.start()
        time.sleep(WARM_UP)
        del steps[:], health[:]
        time.sleep(seconds)
        stop.set()
        for thread in threads:
            thread.join()
        p95 = [statistics.quantiles(durations, n=20)[-1] for durations in (steps, health)]
        kills = [count_left(pid, clients)]
    kills += [kill_beside_hogs(tier) for _ in range(KILLS - 1)]
    return [
        figure(tier, f"step of another session beside {HOGS} hogs, p50", "ms", statistics.median(steps)),
        figure(tier, f"step of another session beside {HOGS} hogs, p95", "ms", p95[0], TARGET_P95),
        figure(tier, f"`/health` beside {HOGS} hogs, p95", "ms", p95[1]),
        figure(tier, f"processes left {AFTER_KILL} s after `kill -9`", "processes", max(kills), 0),
    ]


def kill_beside_hogs(tier: Tier) -> int:
    with served(tier) as (url, pid), hogs(url) as clients:
        time.sleep(2 * WARM_UP)
        return count_left(pid, clients)


def count_left(pid: int, clients: int) -> int:
    """Kill a server; returns how many of its descendants are left soon after.

    Those that it has just started count, too: this process adopts all whose parent has ended.
    """
    os.kill(clients, signal.SIGSTOP)  # their errors would compete for the CPU
    others = set(descendants(os.getpid())) - set(descendants(pid))  # also workers that this process keeps in advance

    os.kill(pid, signal.SIGKILL)
    time.sleep(AFTER_KILL)
    return sum(is_running(child) for child in descendants(os.getpid()) if child not in others)


def measure_idle(tier: Tier) -> dict[str, Any]:
    with served(tier) as (url, pid), ExitStack() as clients:
        empty = sum(map(memory, [pid, *descendants(pid)]))
        for _ in range(IDLE):
            client = clients.enter_context(Client(url))
            client.reset(seed=0)
            client.step({"code": "x = 1"})
        time.sleep(1)
        used = sum(map(memory, [pid, *descendants(pid)])) - empty
    return figure(tier, f"memory of {IDLE} idle sessions", "MiB", used)


def figure(tier: Tier, what: str, unit: str, value: float, target: float | None = None) -> dict[str, Any]:
    met = None if target is None else value <= target
    row = {"what": f"tier {tier}: {what}", "unit": unit, "ours": value, "spread": [value, value]}
    return row | {"openenv": None, "target": target, "met": met}


def measure(tier: Tier, seconds: float) -> list[dict[str, Any]]:
    startup = figure(
        tier, f"the {len(STARTUP_ATTACKS)} attacks at start-up", "s", cached_report(tier).seconds, TARGET_STARTUP
    )
    return [startup, *measure_hogs(tier, seconds), measure_idle(tier)]


def is_running(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] not in "ZX"
    return False


def run_hogs(url: str) -> None:
    threads = [threading.Thread(target=keep_busy, args=(url,)) for _ in range(HOGS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hogs", metavar="URL", help="only keep sessions of this server busy")
    parser.add_argument("--tiers", nargs="+", default=["A", "B"])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    load = round(os.getloadavg()[0], 1)
    parser.add_argument("--load", type=float, default=load, help="load of the machine before the measurement")
    options = parser.parse_args()
    if options.hogs:
        run_hogs(options.hogs)
        return
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    figures = [row for tier in options.tiers for row in measure(tier, options.seconds)]
    result: dict[str, Any] = {
        "name": "sandbox_load",
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system(), "device": "cpu"},
        "load": options.load,
        "versions": {"python": platform.python_version(), "tropism": version("tropism")},
        "figures": figures,
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "sandbox_load.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(figures_as_text(result))
    raise SystemExit(0 if all(row["met"] is not False for row in figures) else 1)


if __name__ == "__main__":
    main()
