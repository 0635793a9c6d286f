"""Throughput, latency and cost of served steps per durability level, also with two workers on Postgres."""

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import psycopg
from deploy.local import open_folder, postgres, postgres_programs
from websockets.sync.client import connect

from benchmarks import load
from benchmarks.measure import RESULTS, processor, progress
from benchmarks.served import free_port, store, wait_for
from benchmarks.table import levels_as_text

ID = "MountainCar-v0"
ENDLESS = ("--param", "max_steps=1000000000")
STEP = load.frame('{"type":"step","data":{"value":1}}')  # without a push, the car never arrives
EXPECTED = b'"done":false'
SIZES = (1, 16, 256)  # sessions
EPISODE_STEPS = 10_999  # 999 steps after the last snapshot, which is the longest replay
IDLE_SESSIONS = 500
LEASE = 1.0  # seconds


@dataclass(frozen=True)
class Level:
    """A durability level: how many workers serve it, and their options."""

    label: str
    workers: int
    options: tuple[str, ...]


class WorkerProcess:
    """A worker with its own port."""

    def __init__(self, options: tuple[str, ...]):
        self.port = free_port()
        self._command = [sys.executable, "-m", "tropism", "serve", ID, *ENDLESS, "--port", str(self.port), *options]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        wait_for(self.port)
        load.open_session(self.port, "/ws").socket.close()  # the first session compiles the environment

    def stop(self, kill: bool = False) -> None:
        (self.process.kill if kill else self.process.terminate)()
        self.process.wait()


@contextmanager
def workers_of(level: Level) -> Iterator[list[WorkerProcess]]:
    with ExitStack() as stack:
        started: list[WorkerProcess] = []
        for _ in range(level.workers):
            started.append(WorkerProcess(level.options))
            stack.callback(started[-1].stop)
        yield started


def measure_level(level: Level, seconds: float, database: int | None) -> list[dict[str, Any]]:
    """One row per number of sessions; `database` is the process of Postgres, if it takes part."""
    rows: list[dict[str, Any]] = []
    with workers_of(level) as workers:
        for size in SIZES:
            progress(f"{level.label}: {size} sessions")
            ports = [workers[number % len(workers)].port for number in range(size)]
            sessions = [load.open_session(port, "/ws") for port in ports]
            load.drive(sessions, STEP, EXPECTED, seconds / 4)  # warm-up
            before = _cpu_seconds(workers), _cpu_of_tree(database)
            latencies: list[float] = []
            steps, elapsed = load.drive(sessions, STEP, EXPECTED, seconds, latencies)
            after = _cpu_seconds(workers), _cpu_of_tree(database)
            p50, p99 = np.percentile(latencies, (50, 99))
            rows.append(
                {
                    "level": level.label,
                    "sessions": size,
                    "rate": steps / elapsed,
                    "p50_ms": 1e3 * p50,
                    "p99_ms": 1e3 * p99,
                    "worker_us": 1e6 * (after[0] - before[0]) / steps,
                    "database_us": 1e6 * (after[1] - before[1]) / steps,
                }
            )
            for session in sessions:
                session.socket.close()
    return rows


def _cpu_seconds(workers: list[WorkerProcess]) -> float:
    return sum(load.cpu_seconds(worker.process.pid) for worker in workers)


def _cpu_of_tree(process: int | None) -> float:
    """The CPU time of a process and of its children that run."""
    if process is None:
        return 0.0
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return load.cpu_seconds(process) + sum(load.cpu_seconds(int(child)) for child in children)


def long_episode(port: int) -> str:
    """The id of a session with a long episode."""
    address = f"http://127.0.0.1:{port}"
    id = httpx.post(f"{address}/reset", json={"seed": 0}).json()["session_id"]
    with connect(f"ws://127.0.0.1:{port}/ws?session_id={id}", proxy=None, compression=None) as connection:
        for _ in range(EPISODE_STEPS):
            connection.send('{"type":"step","data":{"value":1}}')
            connection.recv()
    return id


def resume_seconds(level: Level) -> float:
    """Seconds of the first request after the worker of a long episode was killed; leases have expired."""
    progress(f"{level.label}: resume")
    with workers_of(level) as workers:
        id = long_episode(workers[0].port)
        workers[0].stop(kill=True)
        if level.workers == 1:
            workers[0].start()
        time.sleep(2 * LEASE)
        start = time.perf_counter()
        address = f"http://127.0.0.1:{workers[-1].port}/state"
        reply = httpx.get(address, headers={"X-Session-Id": id}, timeout=60)
        seconds = time.perf_counter() - start
        if reply.json().get("step_count") != EPISODE_STEPS:
            raise AssertionError(reply.text)
    return seconds


def costs(sqlite: Level, shared: Level, url: str, folder: Path, seconds: float) -> dict[str, float]:
    """Bytes per step and per idle session."""
    progress("bytes")
    with psycopg.connect(url, autocommit=True) as connection:
        before = _database_bytes(connection)
        with workers_of(shared) as (worker, *_):
            steps, reply_bytes = _drive_some(worker, seconds)
            after = _database_bytes(connection)
            resident = load.resident_bytes(worker.process.pid)
            idle = [load.open_session(worker.port, "/ws") for _ in range(IDLE_SESSIONS)]
            session_bytes = (load.resident_bytes(worker.process.pid) - resident) / IDLE_SESSIONS
            stored = _database_bytes(connection)
            for session in idle:
                session.socket.close()
    empty = _folder_bytes(folder)
    with workers_of(sqlite) as (worker, *_):
        file_steps, _ = _drive_some(worker, seconds)
    return {
        "wire_bytes": len(STEP) + reply_bytes,
        "postgres_bytes": (after[0] - before[0]) / steps,
        "wal_bytes": (after[1] - before[1]) / steps,
        "sqlite_bytes": (_folder_bytes(folder) - empty) / file_steps,
        "idle_session_bytes": session_bytes,
        "stored_session_bytes": (stored[0] - after[0]) / IDLE_SESSIONS,
    }


def _drive_some(worker: WorkerProcess, seconds: float) -> tuple[int, int]:
    """The steps of sixteen sessions, and the size of a reply."""
    sessions = [load.open_session(worker.port, "/ws") for _ in range(16)]
    steps, _ = load.drive(sessions, STEP, EXPECTED, seconds)
    size = len(sessions[0].exchange(STEP))
    for session in sessions:
        session.socket.close()
    return steps + 1, size


def _database_bytes(connection: psycopg.Connection[Any]) -> tuple[int, int]:
    """The size of the tables, and the bytes that the write-ahead log has had."""
    row = connection.execute(
        "select pg_database_size(current_database()), pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
    ).fetchone()
    assert row is not None
    return row


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def measure(seconds: float) -> dict[str, Any]:
    with TemporaryDirectory() as state, open_folder(None) as folder:
        port = free_port()
        with postgres(postgres_programs(), folder, port) as url:
            with psycopg.connect(url) as connection:
                row = connection.execute("select current_setting('data_directory')").fetchone()
            assert row is not None
            database = int(Path(row[0], "postmaster.pid").read_text().split()[0])
            shared = ("--journal", url, "--lease", str(LEASE))
            file = ("--journal", f"{state}/journal")
            process, power = Level("process", 1, file), Level("power", 1, (*file, "--durability", "power"))
            one, two = Level("Postgres, 1 worker", 1, shared), Level("Postgres, 2 workers", 2, shared)
            rows = measure_level(Level("off", 1, ("--durability", "off")), seconds, None)
            rows += [row for level in (process, power) for row in measure_level(level, seconds, None)]
            rows += [row for level in (one, two) for row in measure_level(level, seconds, database)]
            resume = {level.label: resume_seconds(level) for level in (process, two)}
            return {"levels": rows, "resume": resume, "costs": costs(process, one, url, Path(state), seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    result = {
        "name": "served_workers",
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system(), "device": "cpu"},
        "versions": {"python": platform.python_version(), "tropism": version("tropism")},
        "episode_steps": EPISODE_STEPS,
        **measure(args.seconds),
        "load": os.getloadavg()[0],
    }
    store(result, args.results)
    print(levels_as_text(result))


if __name__ == "__main__":
    main()
