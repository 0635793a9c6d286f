"""The append-only log: what is read back after a crash, damage, or a crash while it is emptied."""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tropism.errors import DivergedError
from tropism.serve.storage.append_log import AppendLog, read_records
from tropism.serve.storage.protocol import Entry, SessionRecord
from tropism.serve.storage.sqlite import SqliteJournal

MARK = b"journal1"
RECORD = SessionRecord("Lab-v0", "", "")
RESET = Entry("reset", {"seed": 1}, 0.0, False)


def steps(first: int, last: int) -> list[Entry]:
    return [Entry("step", {"value": number}, 0.0, False) for number in range(first, last + 1)]


def write(path: Path, payloads: list[bytes]) -> bytes:
    log = AppendLog(path, MARK, 0)
    for payload in payloads:
        log.append(payload)
    log.close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "log"


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6), st.data())
def test_damage_costs_only_the_damaged_record(path: Path, payloads: list[bytes], data: Any):
    path.unlink(missing_ok=True)
    content = bytearray(write(path, payloads))
    records = list(enumerate(payloads, 1))
    assert list(read_records(bytes(content), MARK)) == records
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    intact = list(read_records(bytes(content), MARK))
    assert len(intact) == len(records) - 1
    assert set(intact) < set(records)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6), st.data())
def test_an_incomplete_record_is_skipped_also_when_others_follow(path: Path, payloads: list[bytes], data: Any):
    path.unlink(missing_ok=True)
    content = write(path, payloads)
    kept = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:kept])
    log = AppendLog(path, MARK, 0)
    known = log.pending[:]
    assert known == payloads[: len(known)]
    assert log.lost_bytes == kept - sum(28 + len(payload) for payload in known)
    log.append(b"next")
    log.close()
    assert AppendLog(path, MARK, 0).pending == [*known, b"next"]


def test_records_of_another_journal_and_moved_ones_are_not_read(tmp_path: Path):
    write(tmp_path / "log", [b"one", b"two"])
    assert AppendLog(tmp_path / "log", b"another1", 0).pending == []
    log = AppendLog(tmp_path / "log", MARK, 1)
    assert (log.pending, log.last) == ([b"two"], 2)


def test_a_failed_write_leaves_nothing(tmp_path: Path):
    write(tmp_path / "log", [b"one"])
    log = AppendLog(tmp_path / "log", MARK, 0)
    full, file = os.open("/dev/full", os.O_WRONLY), os.dup(log._descriptor)  # pyright: ignore
    os.dup2(full, log._descriptor)  # pyright: ignore
    with pytest.raises(OSError, match="No space left"):
        log.append(b"two")
    os.dup2(file, log._descriptor)  # pyright: ignore
    log.append(b"three")
    assert AppendLog(tmp_path / "log", MARK, 0).pending == [b"one", b"three"]


async def write_journal(path: Path, groups: list[list[Entry]], **arguments: Any) -> SqliteJournal:
    journal = SqliteJournal(path, **arguments)
    claim = journal.open(b"s", RECORD, "worker")
    for entries in groups:
        await journal.durable(journal.append(claim, entries))
    return journal


def copy(path: Path, to: Path) -> Path:
    for end in ("", "-wal", "-log"):
        shutil.copy(f"{path}{end}", f"{to}{end}")
    return to


async def entries_of(path: Path) -> list[Any]:
    journal = SqliteJournal(path)
    try:
        claim = await journal.claim(b"s", "worker")
        assert claim is not None
        return [entry.payload.get("value") for entry in (*claim.point.before, *claim.point.after)]
    finally:
        await journal.close()


def test_a_crash_between_moving_and_truncating_applies_nothing_twice(tmp_path: Path):
    async def play() -> None:
        journal = await write_journal(tmp_path / "journal", [[RESET], steps(1, 1), steps(2, 3)])
        log = (tmp_path / "journal-log").read_bytes()
        assert log
        journal._file.flush_log()  # pyright: ignore
        assert (tmp_path / "journal-log").read_bytes() == b""
        left = copy(tmp_path / "journal", tmp_path / "left")
        (tmp_path / "left-log").write_bytes(log)  # as if the crash came before the log was truncated
        assert await entries_of(left) == [None, 1, 2, 3]
        await journal.close()

    asyncio.run(play())


def test_a_lost_record_is_an_error_and_not_a_shorter_episode(tmp_path: Path):
    async def play() -> None:
        journal = await write_journal(tmp_path / "journal", [[RESET], steps(1, 1), steps(2, 2), steps(3, 3)])
        left = copy(tmp_path / "journal", tmp_path / "left")
        log = bytearray((tmp_path / "left-log").read_bytes())
        log[len(log) // 2] ^= 1
        (tmp_path / "left-log").write_bytes(bytes(log))
        with pytest.raises(DivergedError, match="not all entries of its episode"):
            await entries_of(left)
        await journal.close()

    asyncio.run(play())


def test_large_entries_are_moved_before_there_are_many(tmp_path: Path):
    async def play() -> None:
        large = Entry("step", {"value": "x" * 2**20}, 0.0, False)
        journal = await write_journal(tmp_path / "journal", [[RESET], *[[large]] * 10])
        assert (tmp_path / "journal-log").stat().st_size < 4 * 2**20
        await journal.close()
        assert len(await entries_of(tmp_path / "journal")) == 11

    asyncio.run(play())
