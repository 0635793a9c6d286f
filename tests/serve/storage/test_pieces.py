"""A session is read in pieces, while the entries of other sessions are written."""

import asyncio
from pathlib import Path

from tropism.serve.storage.protocol import Claim, Entry, SessionRecord
from tropism.serve.storage.sqlite import SqliteJournal

RECORD = SessionRecord("Echo-v0", "{}", "")
RESET = {"seed": 1, "options": None, "episode_id": "ep-1"}
STEPS, LOG_SIZE = 100, 8


def begin(journal: SqliteJournal, key: bytes) -> Claim:
    claim = journal.open(key, RECORD, "worker")
    journal.append(claim, (Entry("reset", RESET, 0.0, False),))
    return claim


async def step(journal: SqliteJournal, claim: Claim, number: int) -> None:
    await journal.durable(journal.append(claim, (Entry("step", {"number": number}, 0.0, False),)))


async def play(path: Path) -> None:
    journal = SqliteJournal(path, log_size=LOG_SIZE)
    long = begin(journal, b"long")
    for number in range(STEPS):
        await step(journal, long, number)
    await journal.release(long, None)
    other, written = begin(journal, b"other"), 0
    for _ in range(5):
        loading = asyncio.ensure_future(journal.claim(b"long", "worker"))
        while not loading.done():
            await step(journal, other, written)  # moves the log to the table, again and again
            written += 1
        claim = await loading
        assert claim is not None
        assert [entry.payload.get("number") for entry in claim.point.after] == [None, *range(STEPS)]
        await journal.release(claim, None)
    await journal.release(other, None)
    claim = await journal.claim(b"other", "worker")
    assert claim is not None
    assert [entry.payload.get("number") for entry in claim.point.after] == [None, *range(written)]
    await journal.close()


def test_a_session_is_read_while_others_are_written(tmp_path: Path):
    asyncio.run(play(tmp_path / "journal"))
