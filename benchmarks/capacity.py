"""What a million served sessions and 10¹² steps a day need, computed from the stored measurements."""

import json
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from benchmarks.measure import RESULTS
from benchmarks.table import number, table_as_markdown

SESSIONS = 10**6
STEPS_PER_DAY = 10**12
SECONDS_PER_DAY = 86_400
EPISODE = 1_000  # steps that a running episode has in the journal, on average
LOG_BYTES = 10**9  # bytes per second that the disk of a database can append: an assumption
MACHINE_CORES = 64  # an assumption
POINTS = 160  # of a server on nginx's ring
COLUMNS = ("need", "arithmetic", "result")


@dataclass(frozen=True)
class Ring:
    """Consistent hashing of sessions to workers, simulated."""

    imbalance: float  # the load of the busiest worker, as a multiple of the mean
    moved: float  # the fraction of sessions that move when a worker is removed


def simulate_ring(workers: int, sessions: int = SESSIONS, seed: int = 0) -> Ring:
    """Random points on the ring, as the hashes of nginx."""
    random = np.random.default_rng(seed)
    points = random.integers(0, 2**32, workers * POINTS, dtype=np.uint64)
    owners = np.repeat(np.arange(workers), POINTS)
    hashes = random.integers(0, 2**32, sessions, dtype=np.uint64)
    before = _assign(points, owners, hashes)
    after = _assign(points[POINTS:], owners[POINTS:], hashes)  # the first worker is removed
    loads = np.bincount(before, minlength=workers)
    return Ring(float(loads.max() / loads.mean()), float((before != after).mean()))


def _assign(points: Any, owners: Any, hashes: Any) -> Any:
    """The owner of the first point at or after each hash."""
    order = np.argsort(points)
    places = np.searchsorted(points[order], hashes) % len(points)
    return owners[order][places]


@dataclass(frozen=True)
class Capacity:
    """The needs; `rate` is in steps per second."""

    rate: float
    worker_us: float
    database_us: float
    costs: dict[str, float]

    @property
    def worker_cores(self) -> float:
        return self.rate * self.worker_us / 1e6

    @property
    def database_cores(self) -> float:
        return self.rate * self.database_us / 1e6

    @property
    def log_rate(self) -> float:
        """Bytes per second of Postgres's write-ahead log."""
        return self.rate * self.costs["wal_bytes"]

    @property
    def databases(self) -> tuple[int, int]:
        """Postgres servers: as many as the cores need, and as many as the log needs."""
        return ceil(self.database_cores / MACHINE_CORES), ceil(self.log_rate / LOG_BYTES)

    @property
    def bottleneck(self) -> str:
        """Workers can be added at will, but a second database divides the sessions."""
        by_cores, by_log = self.databases
        if max(by_cores, by_log) == 1:
            return "the processors of the workers"
        return "the processors of Postgres" if by_cores > by_log else "the write-ahead log of Postgres"


def load_capacity() -> Capacity:
    """From the run with the most sessions on Postgres."""
    result = _result("served_workers")
    row = result["levels"][-1]
    return Capacity(STEPS_PER_DAY / SECONDS_PER_DAY, row["worker_us"], row["database_us"], result["costs"])


def _result(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def capacity_as_markdown() -> str:
    need = load_capacity()
    workers = ceil(need.worker_cores)
    ring = simulate_ring(workers)
    table = table_as_markdown(COLUMNS, [*_traffic_rows(need), *_machine_rows(need, workers, ring), *_other_ways(need)])
    by_cores, by_log = need.databases
    machines = ceil(need.worker_cores / MACHINE_CORES)
    counts = f"{by_cores} Postgres servers are needed by their processors, and {by_log} by their logs"
    workers_line = f"Workers need {machines} machines, and can be added at will."
    return f"{table}\n\nThe bottleneck is {need.bottleneck}: {counts}. {workers_line}"


def _traffic_rows(need: Capacity) -> list[tuple[str, str, str]]:
    rate, costs = number(need.rate), need.costs
    network = 8 * need.rate * costs["wire_bytes"]
    memory = SESSIONS * costs["idle_session_bytes"]
    stored = SESSIONS * (costs["stored_session_bytes"] + EPISODE * costs["postgres_bytes"])
    return [
        ("steps per second", f"10¹² / {SECONDS_PER_DAY:,} s", rate),
        ("steps per second of a session", f"{rate} / 10⁶", number(need.rate / SESSIONS)),
        ("network, WebSocket frames", f"{rate} × {costs['wire_bytes']:.0f} bytes × 8", f"{number(network)}bit/s"),
        (
            "memory of the sessions",
            f"10⁶ × {number(costs['idle_session_bytes'])} bytes",
            f"{number(memory)}B",
        ),
        (
            f"tables, with {EPISODE:,} steps per running episode",
            f"10⁶ × ({number(costs['stored_session_bytes'])} + {EPISODE:,} × {number(costs['postgres_bytes'])} bytes)",
            f"{number(stored)}B",
        ),
    ]


def _machine_rows(need: Capacity, workers: int, ring: Ring) -> list[tuple[str, str, str]]:
    rate, (by_cores, by_log) = number(need.rate), need.databases
    return [
        ("cores of workers", f"{rate} × {need.worker_us:.1f} µs", f"{workers:,}"),
        (
            "the same with the imbalance of hashing",
            f"{workers:,} × {ring.imbalance:.2f} (simulated)",
            f"{workers * ring.imbalance:,.0f}",
        ),
        (
            "sessions that move when a worker is removed",
            f"10⁶ × {ring.moved:.2%} (simulated)",
            f"{SESSIONS * ring.moved:,.0f}",
        ),
        ("cores of Postgres", f"{rate} × {need.database_us:.1f} µs", f"{need.database_cores:,.0f}"),
        (
            f"Postgres servers of {MACHINE_CORES} cores, by cores",
            f"{need.database_cores:,.0f} / {MACHINE_CORES}",
            f"{by_cores:,}",
        ),
        ("write-ahead log", f"{rate} × {need.costs['wal_bytes']:.0f} bytes", f"{number(need.log_rate)}B/s"),
        ("Postgres servers, by a log of 1 GB/s each", f"{number(need.log_rate)} / 1 G", f"{by_log:,}"),
    ]


def _other_ways(need: Capacity) -> list[tuple[str, str, str]]:
    batch = _result("served_figures")["figures"][0]
    device = max(_result("device")["rows"], key=lambda row: row["ours"])
    rate = number(need.rate)
    return [
        (
            "the same steps in batches, without a journal",
            f"{rate} / {number(batch['ours'])} steps/s of one server",
            f"{ceil(need.rate / batch['ours'])} servers",
        ),
        (
            "the same steps of CartPole on a GPU, without a server",
            f"{rate} / {number(device['ours'])} steps/s of one GPU",
            f"{need.rate / device['ours']:.2%} of one GPU",
        ),
    ]
