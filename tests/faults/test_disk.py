"""A full disk, a journal that cannot be written, flipped bits, and a clock that jumps."""

import asyncio
import os
import random
import resource
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from tests.faults.journals import copy_journal, echo, flip_bit, killed_journal, play_echo, resumed
from tests.faults.processes import limited_server, socket_to
from tests.serve.replies import assert_error, assert_refused
from tests.serve.running import Running, process, running, talk, until

from tropism.errors import ValidationError
from tropism.serve.storage.sqlite import SqliteJournal

STEP = {"action": {"message": "x" * 200}}
DAY = 86_400.0  # seconds
SMALL = 4096  # bytes
NOBODY = 65534  # a user without rights
UNREADABLE = ("SESSION_ERROR", "DIVERGED", "JOURNAL_ERROR", "STEP_CONFLICT")


@contextmanager
def file_size_limit(folder: Path) -> Generator[Callable[[], None]]:
    """No file of this process can grow beyond a few kilobytes; needs no rights."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, hard))
    try:
        yield lambda: None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def filled(folder: Path) -> Generator[Callable[[], None]]:
    """The rest of the disk is taken by another file; the function takes what became free meanwhile."""
    filler = folder / "filler"

    def fill() -> None:
        with filler.open("ab", buffering=0) as file:
            for size in (65536, 1):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    fill()
    yield fill
    filler.unlink()


Full = Callable[[Path], AbstractContextManager[Callable[[], None]]]


@pytest.fixture(params=["tmpfs", "limit"])
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[tuple[Path, Full]]:
    """A folder, and a function that fills its disk for a while."""
    if request.param == "limit":
        yield tmp_path, file_size_limit
        return
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this user may not mount a file system")
    try:
        yield tmp_path, filled
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_full_disk_allows_reading_and_closing(disk: tuple[Path, Full]):
    folder, full = disk
    with (
        running("Echo-v0", journal=SqliteJournal(folder / "journal")) as server,
        server.http() as kept,
        server.http() as closed,
    ):
        for caller in (kept, closed):
            caller.post("/reset", json={"seed": 1})
            assert caller.post("/step", json=STEP).json()["step_count"] == 1
        with full(folder) as fill:
            until(lambda: fill() or kept.post("/step", json=STEP).status_code == 503)
            fill()
            count = kept.get("/state").json()["step_count"]
            assert len(kept.get("/history").json()["steps"]) == count
            fill()
            assert closed.post("/close").status_code == 200
            assert_refused(closed.get("/state"), "STATE_ERROR")
        assert kept.post("/step", json=STEP).json()["step_count"] == count + 1


def test_a_server_starts_on_a_full_disk(disk: tuple[Path, Full]):
    folder, full = disk
    if full is file_size_limit:
        pytest.skip("files that exist are larger than the limit, which a full disk has no trouble with")
    path, session = killed_journal(folder, play_echo(5))
    named = {"X-Session-Id": session}
    with (
        full(folder),
        running("Echo-v0", journal=SqliteJournal(path)) as server,
        server.http(headers=named) as caller,
    ):
        assert caller.get("/state").json()["step_count"] == 5
        assert len(caller.get("/history").json()["steps"]) == 5
    with running("Echo-v0", journal=SqliteJournal(path)) as server, server.http(headers=named) as caller:
        assert caller.post("/step", json=STEP).json()["step_count"] == 6


def test_a_journal_that_cannot_be_written_is_refused():
    with TemporaryDirectory() as folder:  # root may write any file, so it becomes another user, who must reach it
        path, _ = killed_journal(Path(folder), play_echo(2))
        for end in ("", "-wal", "-log"):
            Path(f"{path}{end}").chmod(0o444)
        Path(folder).chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(NOBODY)
        try:
            with pytest.raises(ValidationError, match=r"journal is .*; expected a"):
                SqliteJournal(path)
        finally:
            os.seteuid(user)
            Path(folder).chmod(0o755)


def test_a_journal_that_becomes_unwritable_allows_reading_and_closing(tmp_path: Path):
    with (
        process("-m", "tropism", "serve", "Echo-v0", "--port", "0", "--journal", str(tmp_path / "journal")) as server,
        httpx.Client(base_url=server[1], trust_env=False) as kept,
        httpx.Client(base_url=server[1], trust_env=False) as closed,
    ):
        for caller in (kept, closed):
            caller.post("/reset", json={"seed": 1})
            assert caller.post("/step", json=STEP).json()["step_count"] == 1
        soft, hard = resource.prlimit(server[0].pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server[0].pid, resource.RLIMIT_FSIZE, (0, hard))  # the server can write to no file
        for _ in range(2):
            assert_refused(kept.post("/step", json=STEP), "JOURNAL_ERROR")
        assert kept.get("/state").json()["step_count"] == 1
        assert len(kept.get("/history").json()["steps"]) == 1
        assert closed.post("/close").status_code == 200
        assert_refused(closed.get("/state"), "STATE_ERROR")
        resource.prlimit(server[0].pid, resource.RLIMIT_FSIZE, (soft, hard))
        assert kept.post("/step", json=STEP).json()["step_count"] == 2


def test_a_directory_is_refused(tmp_path: Path):
    with pytest.raises(ValidationError, match="this is a directory"):
        SqliteJournal(tmp_path)


def test_deletion_by_age_ignores_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real, session = time.time, ""
    for number, jump in enumerate((0.0, 40 * DAY, -40 * DAY)):
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        with running("Echo-v0", journal=SqliteJournal(tmp_path / "journal")) as server:
            if number == 0:
                session = play_echo(3)(server)
            with server.ws(query=f"?session_id={session}") as connection:
                assert talk(connection, "state")["data"]["step_count"] == 3, jump


def test_deletion_by_age_counts_running_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with running("Echo-v0", journal=SqliteJournal(tmp_path / "journal")) as server:
        session = play_echo(3)(server)
    real = time.monotonic
    journal = SqliteJournal(tmp_path / "journal")
    monkeypatch.setattr(time, "monotonic", lambda: real() + 40 * DAY)
    asyncio.run(journal.close())  # after 40 days
    monkeypatch.undo()
    with (
        running("Echo-v0", journal=SqliteJournal(tmp_path / "journal")) as server,
        server.ws(query=f"?session_id={session}") as connection,
    ):
        assert_error(resumed(connection), "SESSION_ERROR")


def test_a_closed_session_is_erased(tmp_path: Path):
    path = tmp_path / "journal"
    with (
        running("Echo-v0", journal=SqliteJournal(path, erase_interval=0.2)) as server,
        server.ws() as other,
        server.ws() as connection,
    ):
        talk(other, "reset")
        talk(connection, "reset")
        for number in range(20):
            echo(connection, f"the secret {number}")
            echo(other, f"something else {number}")
        assert b"the secret" in journal_bytes(path)
        connection.send('{"type": "close"}')
        until(lambda: b"the secret" not in journal_bytes(path))
        assert b"something else" in journal_bytes(path)


def journal_bytes(path: Path) -> bytes:
    return b"".join(Path(f"{path}{end}").read_bytes() for end in ("", "-wal", "-log"))


def test_one_damaged_entry_costs_its_own_session_only(tmp_path: Path):
    def play(server: Running) -> list[str]:
        return [play_echo(6, seed)(server) for seed in (1, 2, 3)]

    path, sessions = killed_journal(tmp_path, play)
    asyncio.run(SqliteJournal(path, log_size=10**6).close())  # moves the commits into the file
    data = path.read_bytes()
    assert b'"message 2 3"' in data
    path.write_bytes(data.replace(b'"message 2 3"', b'"message 2 3}'))
    with running("Echo-v0", journal=SqliteJournal(path)) as server:
        assert [resume(server, session) for session in sessions] == [6, "DIVERGED", 6]


def resume(server: Running, session: str) -> Any:
    """The step count of a session, or the code of the error; a doubtful one is told what its caller expects."""
    with server.ws(query=f"?session_id={session}") as connection:
        reply = resumed(connection)
        if reply["data"].get("code") == "STEP_CONFLICT":
            reply = resumed(connection, after=6)
    return reply["data"]["step_count"] - 1 if reply["type"] == "observation" else reply["data"]["code"]


def flipped_outcomes(folder: Path, flips: int) -> list[Any]:
    """Flip one bit of a journal at a time; each session must be resumed as it was, or not at all."""

    def play(server: Running) -> list[str]:
        return [play_echo(6, seed)(server) for seed in range(4)]

    path, sessions = killed_journal(folder, play, log_size=8)
    draw, outcomes = random.Random(1), list[Any]()
    for number in range(flips):
        copy = copy_journal(path, folder / f"flipped{number}")
        damaged = Path(f"{copy}{draw.choice(['', '-wal', '-log'])}")
        flip_bit(damaged, draw.randrange(damaged.stat().st_size))
        try:
            journal = SqliteJournal(copy)
        except ValidationError as error:
            outcomes.append(str(error))
            continue
        with running("Echo-v0", journal=journal) as server:
            outcomes += [resume(server, session) for session in sessions]
    return outcomes


@pytest.mark.slow
def test_a_flipped_bit_never_gives_a_wrong_episode(tmp_path: Path):
    outcomes = flipped_outcomes(tmp_path, 25)
    assert {
        each for each in outcomes if each != 6 and each not in UNREADABLE and "journal is" not in str(each)
    } == set()
    assert outcomes.count(6) > len(outcomes) / 2


@pytest.mark.full
def test_flipped_bits_never_give_a_wrong_episode(tmp_path: Path):
    outcomes = flipped_outcomes(tmp_path, 400)
    assert {
        each for each in outcomes if each != 6 and each not in UNREADABLE and "journal is" not in str(each)
    } == set()


@pytest.mark.slow
def test_a_session_closed_on_a_full_disk_reappears_after_a_kill(tmp_path: Path):
    command = ("-m", "tropism", "serve", "Echo-v0", "--port", "0", "--journal", str(tmp_path / "journal"))
    with process(*command) as (server, url), httpx.Client(base_url=url, trust_env=False) as caller:
        session = caller.post("/reset", json={"seed": 1}).json()["session_id"]
        caller.post("/step", json=STEP)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        assert caller.post("/close").status_code == 200
    with process(*command) as (_, url):
        named = {"X-Session-Id": session}
        assert httpx.get(f"{url}/state", headers=named, trust_env=False).json()["step_count"] == 1


@pytest.mark.slow
def test_the_soft_limit_of_open_files_is_raised(tmp_path: Path):
    command = "echo pid $$; ulimit -Sn 256; exec python -m tropism serve Echo-v0 --port 0"
    with limited_server(command, tmp_path) as (_, log):
        soft, hard = resource.prlimit(int(log.read_text().split()[1]), resource.RLIMIT_NOFILE)
        assert soft == hard > 256


@pytest.mark.slow
def test_a_server_survives_the_limit_of_open_files(tmp_path: Path):
    command = "ulimit -n 256; exec python -m tropism serve Echo-v0 --port 0 --log-level warning"
    with limited_server(command, tmp_path) as (url, log):
        port = int(url.rpartition(":")[2])
        with httpx.Client(base_url=url, trust_env=False) as caller:
            caller.post("/reset", json={"seed": 1})
            idle = [socket_to(port) for _ in range(300)]
            assert caller.post("/step", json=STEP).json()["step_count"] == 1
            until(lambda: "no more connections can be accepted" in log.read_text())
            for connection in idle:
                connection.close()
            until(lambda: httpx.get(f"{url}/health", trust_env=False).status_code == 200)
            assert caller.post("/step", json=STEP).json()["step_count"] == 2
