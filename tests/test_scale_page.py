"""The generated tables of the documentation are up to date, and the capacity is computed as documented."""

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.capacity import Capacity, simulate_ring

ROOT = Path(__file__).parent.parent
COSTS = {"wal_bytes": 100.0}


def test_the_tables_are_up_to_date():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.report", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_needs_are_products_of_rate_and_cost():
    need = Capacity(rate=2e6, worker_us=50.0, database_us=64.0, costs=COSTS)
    assert (need.worker_cores, need.database_cores, need.log_rate) == (100.0, 128.0, 2e8)
    assert need.databases == (2, 1)
    assert need.bottleneck == "the processors of Postgres"
    assert Capacity(2e7, 1.0, 1.0, {"wal_bytes": 500.0}).bottleneck == "the write-ahead log of Postgres"
    assert Capacity(1e4, 50.0, 64.0, COSTS).bottleneck == "the processors of the workers"


def test_consistent_hashing_moves_only_the_sessions_of_the_removed_worker():
    ring = simulate_ring(20, sessions=50_000)
    assert ring.moved == pytest.approx(1 / 20, rel=0.5)
    assert 1 < ring.imbalance < 1.5
    assert simulate_ring(20, sessions=50_000) == ring
