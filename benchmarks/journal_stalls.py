"""How long the journal keeps the event loop waiting while a session of 60 MB is loaded: the longest append of another.

`python -m benchmarks.journal_stalls` stores the figure.
"""

import argparse
import asyncio
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import RESULTS, processor
from benchmarks.served import store
from benchmarks.served_figures import row
from benchmarks.table import figures_as_text
from tropism.serve.storage.protocol import Claim, Entry, SessionRecord
from tropism.serve.storage.sqlite import SqliteJournal

ENTRIES, SIZE, RUNS = 60, 2**20, 5
TARGET = 50.0  # milliseconds
RECORD = SessionRecord("Echo-v0", "{}", "")
RESET = {"seed": 1, "options": None, "episode_id": "ep-1"}


def open_session(journal: SqliteJournal, key: bytes) -> Claim:
    claim = journal.open(key, RECORD, "worker")
    journal.append(claim, (Entry("reset", RESET, 0.0, False),))
    return claim


async def longest_append(journal: SqliteJournal, small: Claim, large: bytes) -> float:
    """Milliseconds of the longest append to a small session while a large one is loaded."""
    loading, longest = asyncio.ensure_future(journal.claim(large, "worker")), 0.0
    while not loading.done():
        start = time.perf_counter()
        await journal.durable(journal.append(small, (Entry("step", {"message": "a"}, 0.0, False),)))
        longest = max(longest, time.perf_counter() - start)
        await asyncio.sleep(0.001)
    claim = await loading
    assert claim is not None
    assert len(claim.point.after) == ENTRIES + 1
    await journal.release(claim, None)
    return 1000 * longest


async def measure(folder: Path) -> list[float]:
    journal = SqliteJournal(folder / "journal")
    large = open_session(journal, b"large")
    for _ in range(ENTRIES):
        await journal.durable(journal.append(large, (Entry("step", {"message": "x" * SIZE}, 0.0, False),)))
    await journal.release(large, None)
    small = open_session(journal, b"small")
    times = [await longest_append(journal, small, b"large") for _ in range(RUNS)]
    await journal.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        times = asyncio.run(measure(Path(folder)))
    result = {
        "name": "journal_stalls",
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system(), "device": "cpu"},
        "versions": {"python": platform.python_version(), "tropism": version("tropism")},
        "figures": [row("the longest append while a session of 60 MB is loaded", "ms", times, TARGET)],
    }
    store(result, args.results)
    print(figures_as_text(result))


if __name__ == "__main__":
    main()
