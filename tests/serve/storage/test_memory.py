"""The journal in memory is bounded."""

import asyncio

from tropism.serve.storage.memory import MemoryJournal
from tropism.serve.storage.protocol import Entry, SessionRecord

RECORD = SessionRecord("Lab-v0", "{}", "owner")
RESET, STEP = Entry("reset", {"seed": 1}, 0.0, False), Entry("step", {"value": 1}, 1.0, False)


def test_the_middle_of_a_long_episode_is_dropped():
    journal = MemoryJournal(max_entries=3)
    claim = journal.open(b"key", RECORD, "a")
    journal.append(claim, [RESET], b"s")
    for _ in range(50):
        journal.append(claim, [STEP], b"s")
    loaded = asyncio.run(journal.claim(b"key", "a"))
    assert loaded is not None
    assert list(loaded.point.before) == [RESET, STEP, STEP, STEP]  # three, and the last


def test_the_oldest_released_sessions_are_deleted():
    async def release_three() -> list[bool]:
        journal = MemoryJournal(max_released=2)
        keys = [b"a", b"b", b"c"]
        for key in keys:
            claim = journal.open(key, RECORD, "a")
            journal.append(claim, [RESET])
            await journal.release(claim, b"s")
        return [await journal.claim(key, "a") is not None for key in keys]

    assert asyncio.run(release_three()) == [False, True, True]
