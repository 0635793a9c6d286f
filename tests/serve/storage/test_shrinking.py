"""The file of a journal shrinks after sessions are deleted."""

import asyncio
from pathlib import Path

from tropism.serve.storage.protocol import Entry, SessionRecord
from tropism.serve.storage.sqlite import SqliteJournal

LARGE = 2**20  # bytes of an entry
KEYS = b"1" * 16, b"2" * 16


async def write_steps(journal: SqliteJournal, key: bytes, count: int) -> None:
    claim = journal.open(key, SessionRecord("Coding-v0", "{}", ""), "worker")
    journal.append(claim, (Entry("reset", {}, 0.0, False),))
    for _ in range(count):
        await journal.durable(journal.append(claim, (Entry("step", {"code": "x" * LARGE}, 0.0, False),)))


def test_the_file_shrinks_after_a_large_session_is_deleted(tmp_path: Path):
    async def use() -> tuple[int, int]:
        journal = SqliteJournal(tmp_path / "journal")
        await write_steps(journal, KEYS[0], 40)
        before = size()
        await journal.forget(KEYS[0])
        for _ in range(20):  # some pages are returned whenever the log is moved
            await write_steps(journal, KEYS[1], 4)
            await journal.forget(KEYS[1])
        await journal.close()
        return before, size()

    def size() -> int:
        return sum(path.stat().st_size for path in tmp_path.iterdir())

    before, after = asyncio.run(use())
    assert before > 40 * LARGE
    assert after < before / 4
