"""How long the journal keeps the event loop waiting while a large session is loaded, ended by a reset, or deleted.

The figures are the longest appends to another session meanwhile. `python -m benchmarks.journal_stalls` stores them.
"""

import argparse
import asyncio
import os
import platform
import time
from collections.abc import Coroutine
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import RESULTS, processor
from benchmarks.served import store
from benchmarks.served_figures import row
from benchmarks.table import figures_as_text
from tropism.serve.storage.protocol import Claim, Entry, SessionRecord
from tropism.serve.storage.sqlite import SqliteJournal

ENTRIES, SIZE, RUNS = 60, 2**20, 5
DELETED = 240  # entries of the session that is deleted
TARGET = 50.0  # milliseconds
RECORD = SessionRecord("Echo-v0", "{}", "")
RESET = Entry("reset", {"seed": 1, "options": None, "episode_id": "ep-1"}, 0.0, False)


async def open_session(journal: SqliteJournal, key: bytes, entries: int = 0) -> Claim:
    claim = journal.open(key, RECORD, "worker")
    await journal.durable(journal.append(claim, (RESET,)))
    for _ in range(entries):
        await journal.durable(journal.append(claim, (Entry("step", {"message": "x" * SIZE}, 0.0, False),)))
    return claim


async def longest_append(journal: SqliteJournal, small: Claim, waiting: Coroutine[Any, Any, Any]) -> float:
    """Milliseconds of the longest append to a small session until a coroutine ends."""
    task, longest = asyncio.ensure_future(waiting), 0.0
    while not task.done():
        start = time.perf_counter()
        await journal.durable(journal.append(small, (Entry("step", {"message": "a"}, 0.0, False),)))
        longest = max(longest, time.perf_counter() - start)
        await asyncio.sleep(0.001)
    await task
    return 1000 * longest


async def load(journal: SqliteJournal, key: bytes) -> None:
    claim = await journal.claim(key, "worker")
    assert claim is not None
    assert len(claim.point.after) == ENTRIES + 1
    await journal.release(claim, None)


async def reset(journal: SqliteJournal, claim: Claim) -> None:
    await journal.durable(journal.append(claim, (RESET,)))


async def delete(journal: SqliteJournal, key: bytes) -> None:
    """Close a session, and wait until it has been erased and the file has shrunk."""
    await journal.forget(key)
    while journal.path.stat().st_size > DELETED * SIZE / 2:
        await asyncio.sleep(0.01)


async def measure(path: Path) -> dict[str, list[float]]:
    journal = SqliteJournal(path, erase_interval=0.0)
    small = await open_session(journal, b"small")
    times: dict[str, list[float]] = {}
    loaded = await open_session(journal, b"loaded", ENTRIES)
    await journal.release(loaded, None)
    name = f"the longest append while a session of {ENTRIES} MB is loaded"
    times[name] = [await longest_append(journal, small, load(journal, b"loaded")) for _ in range(RUNS)]
    await journal.forget(b"loaded")
    for _ in range(RUNS):
        ended = await open_session(journal, b"ended", ENTRIES)
        name = f"the longest append while a reset ends an episode of {ENTRIES} MB"
        times.setdefault(name, []).append(await longest_append(journal, small, reset(journal, ended)))
        await journal.forget(b"ended")
        await open_session(journal, b"deleted", DELETED)
        name = f"the longest append while a session of {DELETED} MB is deleted"
        times.setdefault(name, []).append(await longest_append(journal, small, delete(journal, b"deleted")))
    await journal.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        times = asyncio.run(measure(Path(folder) / "journal"))
    result = {
        "name": "journal_stalls",
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system(), "device": "cpu"},
        "versions": {"python": platform.python_version(), "tropism": version("tropism")},
        "figures": [row(name, "ms", each, TARGET) for name, each in times.items()],
    }
    store(result, args.results)
    print(figures_as_text(result))


if __name__ == "__main__":
    main()
