"""Closed sessions and ended episodes are deleted from the file in pieces."""

import asyncio
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.serve.running import until

from tropism.serve.storage.eraser import Eraser, erase_discarded
from tropism.serve.storage.protocol import Claim, Entry, SessionRecord
from tropism.serve.storage.sqlite import LOG_SIZE, SqliteJournal
from tropism.serve.storage.sqlite_file import SqliteFile
from tropism.serve.storage.statements import WriteGroup, close_statements

RECORD = SessionRecord("Echo-v0", "{}", "")
RESET = Entry("reset", {"seed": 1}, 0.0, False)
LARGE = 2**20


def secret(number: int) -> Entry:
    return Entry("step", {"message": f"the secret {number} " + "x" * LARGE}, 0.0, False)


async def write_session(journal: SqliteJournal, key: bytes, steps: int) -> Claim:
    claim = journal.open(key, RECORD, "worker")
    await journal.durable(journal.append(claim, [RESET]))
    for number in range(steps):
        await journal.durable(journal.append(claim, [secret(number)]))
    return claim


async def entries_of(journal: SqliteJournal, key: bytes) -> list[Entry]:
    claim = await journal.claim(key, "worker")
    assert claim is not None
    return list(claim.point.after)


def copy_files(path: Path, target: Path) -> Path:
    """The files as a kill at this moment leaves them."""
    for end in ("", "-wal", "-log"):
        shutil.copy(f"{path}{end}", f"{target}{end}")
    return target


def has_secret(path: Path) -> bool:
    files = [Path(f"{path}{end}") for end in ("", "-wal", "-log")]
    return any(b"the secret" in file.read_bytes() for file in files if file.exists())


def count_rows(file: SqliteFile, table: str) -> int:
    ((rows,),) = file.query(f"select count(*) from {table}")
    return rows


def test_a_kill_before_the_erasure_leaves_nothing_behind(tmp_path: Path):
    async def close_and_kill() -> Path:
        journal = SqliteJournal(tmp_path / "journal")
        await write_session(journal, b"kept", 1)
        await write_session(journal, b"closed", 6)
        await journal.forget(b"closed")
        copy = copy_files(journal.path, tmp_path / "copy")
        await journal.close()
        return copy

    async def restart(path: Path) -> None:
        journal = SqliteJournal(path, erase_interval=0.05)
        assert await journal.claim(b"closed", "worker") is None
        await write_session(journal, b"next", 0)  # has another number than the closed one
        assert await entries_of(journal, b"next") == [RESET]
        assert await entries_of(journal, b"kept") == [RESET, secret(0)]
        await journal.forget(b"kept")
        await asyncio.to_thread(until, lambda: not has_secret(path))
        assert await entries_of(journal, b"next") == [RESET]
        await journal.close()

    copy = asyncio.run(close_and_kill())
    assert has_secret(copy)
    asyncio.run(restart(copy))


def test_a_session_closed_before_a_kill_is_erased_by_the_next_server(tmp_path: Path):
    async def use() -> None:
        journal = SqliteJournal(tmp_path / "journal")
        await write_session(journal, b"closed", 6)
        await journal.forget(b"closed")
        copy = copy_files(journal.path, tmp_path / "copy")
        await journal.close()
        assert has_secret(copy)
        assert not has_secret(journal.path)  # a shutdown does not leave it to the next server
        resumed = SqliteJournal(copy, erase_interval=0.0)
        await asyncio.to_thread(until, lambda: not has_secret(copy))
        await resumed.close()

    asyncio.run(use())


def test_a_large_session_is_deleted_in_pieces(tmp_path: Path):
    async def write() -> None:
        journal = SqliteJournal(tmp_path / "journal")
        await write_session(journal, b"large", 30)
        await journal.close()

    asyncio.run(write())
    file, group, pieces = SqliteFile(tmp_path / "journal", LOG_SIZE), WriteGroup(), 0
    group.statements += close_statements(1)
    file.write(group)
    assert count_rows(file, "sessions") == 0
    assert count_rows(file, "episodes") >= 20
    discarded = file.discarded_sessions()
    assert len(discarded) == 1
    while discarded:
        file.delete_some(discarded)
        pieces += 1
    assert pieces >= 3
    assert [count_rows(file, table) for table in ("episodes", "notes", "discarded")] == [0, 0, 0]
    erase_discarded(file)
    file.close()
    assert (tmp_path / "journal").stat().st_size < 10 * LARGE


def test_a_reset_leaves_a_large_episode_to_be_deleted_later(tmp_path: Path):
    async def use() -> None:
        journal = SqliteJournal(tmp_path / "journal")
        claim = await write_session(journal, b"key", 12)
        await journal.durable(journal.append(claim, [RESET]))
        copies = [copy_files(journal.path, tmp_path / f"copy{number}") for number in range(2)]
        for number in range(40):  # as many entries as move the log to the file a few times
            await journal.durable(journal.append(claim, [Entry("step", {"message": "y" * LARGE}, 0.0, False)]))
            copies[0] = copy_files(journal.path, tmp_path / "copy0") if number == 20 else copies[0]
        await journal.close()
        file = SqliteFile(copies[1], LOG_SIZE)
        left = count_rows(file, "episodes")
        assert left > 5
        erase_discarded(file)
        assert count_rows(file, "episodes") <= 1  # the current episode
        file.close()
        for copy in (copies[0], journal.path):
            resumed = SqliteJournal(copy)
            assert (await entries_of(resumed, b"key"))[0] == RESET
            assert len(await entries_of(resumed, b"key")) in (22, 41)
            await resumed.close()
        assert not has_secret(journal.path)

    asyncio.run(use())


CHURN = """
import asyncio, sys
from itertools import count
from tropism.serve.storage.protocol import Entry, SessionRecord
from tropism.serve.storage.sqlite import SqliteJournal

async def churn():
    journal = SqliteJournal(sys.argv[1], log_size=16, erase_interval=0.0)
    for number in count(int(sys.argv[2])):
        for name in ("kept", "closed"):
            claim = journal.open(f"{name} {number}".encode(), SessionRecord("Echo-v0", "{}", ""), "worker")
            for _ in range(2):  # the second reset discards the first episode
                await journal.durable(journal.append(claim, [Entry("reset", {"seed": number}, 0.0, False)]))
                for step in range(8):
                    entry = Entry("step", {"number": [number, step], "text": "x" * 2**18}, 0.0, False)
                    await journal.durable(journal.append(claim, [entry]))
            await journal.release(claim, None)
        await journal.forget(f"closed {number}".encode())
        print(number, flush=True)

asyncio.run(churn())
"""


def churn(path: Path, first: int, rounds: int) -> list[int]:
    """Write and close sessions in a process that is killed after some rounds; returns the numbers of complete ones."""
    command = [sys.executable, "-c", CHURN, str(path), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        numbers = [int(process.stdout.readline()) for _ in range(rounds)]
        process.kill()
        return numbers + [int(number) for number in process.stdout.read().split()]


@pytest.mark.slow
def test_a_kill_during_an_erasure_harms_no_other_session(tmp_path: Path):
    path, numbers = tmp_path / "journal", [0]
    for rounds in (3, 1, 2, 2):
        numbers += churn(path, numbers[-1] + 2, rounds)  # the round after the last one was begun
        asyncio.run(check_churned(copy_files(path, tmp_path / "copy"), numbers[1:]))


async def check_churned(path: Path, numbers: list[int]) -> None:
    journal = SqliteJournal(path, erase_interval=0.0)
    for number in numbers:
        assert await journal.claim(f"closed {number}".encode(), "worker") is None
        entries = await entries_of(journal, f"kept {number}".encode())
        assert entries[0].payload == {"seed": number}
        assert [entry.payload["number"] for entry in entries[1:]] == [[number, step] for step in range(8)]
    await journal.close()
    file = SqliteFile(path, LOG_SIZE)
    assert count_rows(file, "discarded") == 0
    assert file.query("select 1 from episodes where session not in (select number from sessions)") == []
    assert file.query("pragma integrity_check") == [("ok",)]
    file.close()


def test_an_eraser_tries_again_until_it_succeeds():
    calls, succeeded = list[int](), threading.Event()

    def erase() -> bool:
        calls.append(1)
        if len(calls) == 3:
            succeeded.set()
        return len(calls) == 3

    eraser = Eraser(erase, 0.01)
    eraser.request()
    assert succeeded.wait(10)
    eraser.close()
    assert len(calls) == 3


@pytest.mark.parametrize("succeeds", [True, False])
def test_a_closing_eraser_erases_once_what_was_requested(succeeds: bool):
    calls: list[int] = []

    def erase() -> bool:
        calls.append(1)
        return succeeds

    eraser = Eraser(erase, 3600.0)
    eraser.close()
    assert calls == []
    eraser = Eraser(erase, 3600.0)
    eraser.request()
    eraser.request()
    eraser.close()
    assert calls == [1]
