"""Acknowledged requests survive crashes of the server."""

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from random import random
from typing import Any

import jax
import pytest
from tests.ids import PURE, mark_slow
from tests.serve.lab import SLEEP, STAY, Lab
from tests.serve.replies import assert_error, assert_refused
from tests.serve.running import Running, labs, running, talk, until
from websockets.exceptions import ConnectionClosed

from tropism import Session, make
from tropism.errors import ValidationError
from tropism.record import Reader
from tropism.serve.server import load_environments
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.json_form import JsonForm
from tropism.serve.storage.schema import default_path
from tropism.serve.storage.sqlite import SqliteJournal
from tropism.serve.storage.working_memory import SessionLimits

copies = count()
STEP = {"value": 1}


class Moody(Lab):
    """Its observations do not depend on the seed alone."""

    def observation(self, state: Any) -> Any:
        return super().observation(state) + random()


def serve_only(id: str, env: Any) -> dict[str, ServedEnvironment]:
    return {id: ServedEnvironment(id, env, env.default_params(), "A test's own.")}


def connection_of(server: Running) -> Any:
    """The journal's SQLite connection."""
    journal: Any = server.app.sessions.journal
    return journal._file._file


@contextmanager
def after_a_crash(server: Running, *ids: str, **more: Any) -> Generator[Running]:
    """Another server with the journal as kill -9 would have left it."""
    path = server.app.sessions.journal.path  # pyright: ignore
    left = path.parent / f"left-{next(copies)}"
    for suffix in ("", "-wal", "-log"):
        shutil.copy(f"{path}{suffix}", f"{left}{suffix}")
    max_entries = more.get("session_limits", SessionLimits()).max_entries
    with running(*ids, journal=SqliteJournal(left, max_entries=max_entries), **more) as again:
        yield again


def random_action(session: Session, number: int) -> dict[str, Any]:
    """A random action in JSON form."""
    form, space = JsonForm(session), session.action_space
    return form.write_action(space.coerce(space.sample(jax.random.key(number))))


@pytest.mark.parametrize("id", mark_slow(PURE, {"CartPole-v1", "PlumeNavMeander-v0"}))
def test_an_episode_continues_bit_for_bit_after_a_crash(id: str):
    session = Session(*make(id))
    actions = [random_action(session, number) for number in range(5)]
    with running(id, session_limits=SessionLimits(snapshot_every=3)) as server, server.ws(id) as first:
        begun = talk(first, "reset", {"seed": 7})["data"]
        for action in actions[:4]:
            talk(first, "step", action)
        before = talk(first, "state")["data"]
        with after_a_crash(server, id) as again, again.ws(id, f"?session_id={begun['session_id']}") as second:
            assert talk(second, "state")["data"] == before
            assert talk(second, "history")["data"] == talk(first, "history")["data"]
            for action in (actions[4], actions[0]):
                assert talk(second, "step", action)["data"] == talk(first, "step", action)["data"]
            begun, anew = (talk(connection, "reset")["data"]["observation"] for connection in (first, second))
            assert begun == anew  # later episodes too


@pytest.mark.parametrize(
    ("id", "engines"),
    [
        ("CartPole-v1", ("native", "xla")),
        ("CartPole-v1", ("xla", "native")),
        pytest.param("Acrobot-v1", ("xla", "native"), marks=pytest.mark.slow),  # differs, and is repeated on xla
    ],
)
def test_a_journal_is_resumed_on_another_engine(id: str, engines: tuple[Any, Any]):
    written, resumed = (load_environments([id], engine=engine) for engine in engines)
    with running(own=written) as server, server.ws(id) as first:
        begun = talk(first, "reset", {"seed": 7})["data"]
        for number in range(15):
            talk(first, "step", {"value": number % 2})
        with after_a_crash(server, own=resumed) as again, again.ws(id, f"?session_id={begun['session_id']}") as second:
            assert talk(second, "step", STEP)["data"] == talk(first, "step", STEP)["data"]


MESSAGES = {
    "Echo-v0": [{"message": "one"}, {"message": "two"}, {"message": "three"}],
    "Chat-v0": [{"role": "user", "content": "hello"}] * 3,
    "Lab-v0": [{"value": STAY}] * 3,
}


@pytest.mark.parametrize("id", MESSAGES)
def test_a_host_episode_continues_after_a_crash(id: str):
    """After a crash, after another crash, and after an eviction."""
    first, second, third = MESSAGES[id]
    environments = load_environments(["Echo-v0", "Chat-v0"]) | labs()
    with running(own=environments) as server, server.ws(id) as unbroken:
        name = f"?session_id={talk(unbroken, 'reset', {'seed': 3})['data']['session_id']}"
        talk(unbroken, "step", first)
        with after_a_crash(server, own=environments, idle_timeout=0.1) as again:
            with again.ws(id, name) as resumed:
                assert talk(resumed, "step", second) == talk(unbroken, "step", second)
            until(lambda: not len(again.app.sessions))
            with after_a_crash(again, own=environments) as once_more, once_more.ws(id, name) as resumed:
                assert talk(resumed, "step", third) == talk(unbroken, "step", third)
                assert talk(resumed, "state") == talk(unbroken, "state")


def test_a_repeated_request_is_performed_once_across_crashes():
    with running("CartPole-v1") as server, server.ws() as connection:
        begun = talk(connection, "reset", {"seed": 1}, request_id="r0")
        stepped = talk(connection, "step", STEP, request_id="r1")
        forked = talk(connection, "fork", {"from": "now"}, request_id="r2")
        query = f"?session_id={begun['data']['session_id']}"
        with after_a_crash(server, "CartPole-v1") as again, again.ws(query=query) as resumed:
            assert talk(resumed, "step", STEP, request_id="r1") == stepped
            assert talk(resumed, "fork", {"from": "now"}, request_id="r2") == forked
            assert talk(resumed, "reset", {"seed": 1}, request_id="r0") == begun
            assert talk(resumed, "state")["data"]["step_count"] == 1
            refused = talk(resumed, "step", {"value": 0}, request_id="r1")
            assert "was a different one" in assert_error(refused, "STATE_ERROR")["message"]
            assert len(again.app.sessions) == 1


def test_a_request_before_the_last_checkpoint_is_not_repeated():
    limits = SessionLimits(snapshot_every=2)
    with running("CartPole-v1", session_limits=limits) as server, server.ws() as connection:
        id = talk(connection, "reset", {"seed": 1})["data"]["session_id"]
        replies = [talk(connection, "step", {"value": n % 2}, request_id=f"r{n}") for n in range(3)]
        with after_a_crash(server, "CartPole-v1") as again, again.ws(query=f"?session_id={id}") as resumed:
            refused = talk(resumed, "step", {"value": 0}, request_id="r0")
            assert "no longer stored" in assert_error(refused, "STATE_ERROR")["message"]
            assert talk(resumed, "step", {"value": 0}, request_id="r2") == replies[2]


def test_a_repeated_step_at_a_checkpoint_gets_its_reply():
    limits = SessionLimits(snapshot_every=2)
    with running("CartPole-v1", session_limits=limits) as server, server.ws() as connection:
        id = talk(connection, "reset", {"seed": 1})["data"]["session_id"]
        replies = [talk(connection, "step", STEP, request_id=f"r{number}") for number in range(2)]
        with after_a_crash(server, "CartPole-v1") as again, again.ws(query=f"?session_id={id}") as resumed:
            assert talk(resumed, "step", STEP, request_id="r1") == replies[1]
            assert talk(resumed, "state")["data"]["step_count"] == 2


def test_a_fork_does_not_share_its_parents_request_ids():
    with running("CartPole-v1") as server, server.ws() as connection:
        talk(connection, "reset", {"seed": 1})
        talk(connection, "step", STEP, request_id="r1")
        fork = talk(connection, "fork", {"from": "now"})["data"]["session_id"]
        with after_a_crash(server, "CartPole-v1") as again, again.ws(query=f"?session_id={fork}") as resumed:
            assert talk(resumed, "step", STEP, request_id="r1")["type"] == "observation"
            assert talk(resumed, "state")["data"]["step_count"] == 2


def test_snapshots_and_forks_survive_a_crash():
    with running("CartPole-v1") as server, server.ws() as connection:
        id = talk(connection, "reset", {"seed": 6})["data"]["session_id"]
        talk(connection, "step", STEP)
        snapshot = talk(connection, "snapshot")["data"]["snapshot_id"]
        ahead = talk(connection, "step", STEP)["data"]
        fork = talk(connection, "fork", {"from": snapshot, "seed": 4})["data"]["session_id"]
        talk(connection, "reset", {"seed": 9})  # another episode than that of the snapshot
        with server.ws(query=f"?session_id={fork}") as there:
            talk(there, "step", STEP)
            with after_a_crash(server, "CartPole-v1") as again:
                with again.ws(query=f"?session_id={id}") as resumed:
                    assert talk(resumed, "history")["data"]["seed"] == 9
                    talk(resumed, "restore", {"from": snapshot})
                    assert talk(resumed, "step", STEP)["data"] == ahead
                    assert len(talk(resumed, "history")["data"]["steps"]) == 2
                with again.ws(query=f"?session_id={fork}") as resumed:
                    assert talk(resumed, "history") == talk(there, "history")
                    assert talk(resumed, "step", STEP) == talk(there, "step", STEP)


def test_entries_are_found_after_the_log_was_flushed():
    """Entries are moved from the log to the table of episodes, except those of finished episodes."""
    with running("Echo-v0", log_size=5) as server, server.ws() as first, server.ws() as second:
        ids = [talk(connection, "reset")["data"]["session_id"] for connection in (first, second)]
        for number in range(8):
            for connection in (first, second):
                talk(connection, "step", {"message": f"{number}"})
        talk(second, "reset")
        talk(second, "step", {"message": "last"})
        rows = connection_of(server).execute("select count(*) from log").fetchone()[0]
        assert rows < 5
        with after_a_crash(server, "Echo-v0") as again:
            for id, connection in zip(ids, (first, second), strict=True):
                with again.ws(query=f"?session_id={id}") as resumed:
                    assert talk(resumed, "history") == talk(connection, "history")


def test_the_middle_of_a_very_long_episode_is_deleted():
    limits = SessionLimits(max_entries=10, snapshot_every=7)
    with running("Pendulum-v1", log_size=3, session_limits=limits) as server, server.ws() as connection:
        id = talk(connection, "reset", {"seed": 2})["data"]["session_id"]
        for _ in range(60):
            talk(connection, "step", {"value": [0.5]})
        pieces = connection_of(server).execute("select first, last from episodes order by first").fetchall()
        assert sum(last - first + 1 for first, last in pieces) < 30
        crash = after_a_crash(server, "Pendulum-v1", session_limits=limits)
        with crash as again, again.ws(query=f"?session_id={id}") as resumed:
            assert talk(resumed, "history") == talk(connection, "history")
            assert talk(resumed, "step", {"value": [1.0]}) == talk(connection, "step", {"value": [1.0]})


def test_a_closed_session_stays_closed():
    with running("Echo-v0") as server, server.ws() as connection:
        id = talk(connection, "reset")["data"]["session_id"]
        connection.send('{"type": "close"}')
        with pytest.raises(ConnectionClosed):
            connection.recv(10)
        with after_a_crash(server, "Echo-v0") as again, again.http() as caller:
            assert_refused(caller.post("/step", json={}, headers={"X-Session-Id": id}), "SESSION_ERROR")
        assert connection_of(server).execute("select * from sessions").fetchall() == []


def test_a_session_is_resumed_only_with_its_owners_token():
    tokens = ("ours", "theirs")
    with running("Echo-v0", tokens=tokens) as server, server.http(headers={"Authorization": "Bearer ours"}) as caller:
        id = caller.post("/reset", json={}).headers["X-Session-Id"]
        with after_a_crash(server, "Echo-v0", tokens=tokens) as again:
            for token, status in (("theirs", 404), ("ours", 200)):
                headers = {"Authorization": f"Bearer {token}", "X-Session-Id": id}
                with again.http(headers=headers) as other:
                    assert other.get("/state").status_code == status
        said = "\n".join(connection_of(server).iterdump())
        assert id not in said
        assert "ours" not in said


def test_an_episode_whose_replay_diverges_is_not_resumed():
    environments = serve_only("Moody-v0", Moody())
    with running(own=environments) as server, server.http() as caller:
        id = caller.post("/reset", json={"seed": 1}).headers["X-Session-Id"]
        with after_a_crash(server, own=environments) as again, again.http(headers={"X-Session-Id": id}) as other:
            for _ in range(2):
                received = assert_refused(other.post("/step", json={"action": {"value": STAY}}), "DIVERGED")
                assert "in the replay of this episode of Moody-v0, the reply to the reset" in received["message"]
            with again.ws(query=f"?session_id={id}") as resumed:
                assert "DIVERGED" in str(resumed.recv(10))
            del other.headers["X-Session-Id"]
            other.cookies["tropism.Moody-v0"] = id
            assert_refused(other.get("/state"), "DIVERGED")
            assert other.post("/reset", json={}).headers["X-Session-Id"] != id  # the cookie is ignored


def test_an_episode_that_cannot_be_replayed_is_not_resumed():
    with running(own=labs()) as server, server.http("Unwritable-v0") as caller:
        id = caller.post("/reset", json={"seed": 1}).headers["X-Session-Id"]
        with after_a_crash(server, own=labs()) as again, again.http("Unwritable-v0") as other:
            received = other.post("/step", json={"action": {"value": STAY}}, headers={"X-Session-Id": id})
            assert "ended with the server" in assert_refused(received, "SESSION_ERROR")["message"]


def test_a_session_is_not_resumed_with_other_params():
    with running("CartPole-v1") as server, server.http() as caller:
        id = caller.post("/reset", json={"seed": 1}).headers["X-Session-Id"]
        moon = load_environments(["CartPole-v1"], params={"gravity": 1.6})
        with after_a_crash(server, own=moon) as again, again.http(headers={"X-Session-Id": id}) as other:
            received = assert_refused(other.post("/step", json={"action": STEP}), "DIVERGED")
            assert "other arguments or params" in received["message"]


@contextmanager
def full_disk(server: Running) -> Generator[None]:
    """Make the disk full: writes to the log fail as on a full disk, and the SQLite file cannot grow."""
    connection = connection_of(server)
    log: Any = server.app.sessions.journal._file._log  # pyright: ignore
    (pages,) = connection.execute("pragma page_count").fetchone()
    connection.execute(f"pragma max_page_count = {pages}")
    file, full = os.dup(log._descriptor), os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, log._descriptor)
    try:
        yield
    finally:
        connection.execute("pragma max_page_count = 1073741823")
        os.dup2(file, log._descriptor)
        os.close(file)
        os.close(full)


def slow_environments() -> dict[str, ServedEnvironment]:
    slow = ServedEnvironment("Slow-v0", *make("Echo-v0"), "Echo in a thread.")
    slow._warm_up = lambda: False  # pyright: ignore
    return {"Slow-v0": slow}


LARGE = {"message": "x" * 20_000}  # more than the rest of a page


@pytest.mark.parametrize("id", ["Echo-v0", "Slow-v0"])
def test_a_step_on_a_full_disk_fails_and_the_session_is_kept(id: str):
    """Inline, and in a thread; over a socket, and over HTTP."""
    with running(own=load_environments(["Echo-v0"]) | slow_environments()) as server, ExitStack() as held:
        connection, other = (held.enter_context(server.ws(id)) for _ in range(2))
        caller = held.enter_context(server.http(id))
        session = talk(connection, "reset", {"seed": 1})["data"]["session_id"]
        talk(other, "reset", {"seed": 2})
        talk(connection, "step", {"message": "one"}, request_id="r1")
        headers = {"X-Session-Id": session}
        with full_disk(server):
            received = assert_error(talk(connection, "step", LARGE, id=5, request_id="r2"), "JOURNAL_ERROR")
            assert "No space left" in received["message"]
            body = {"action": LARGE, "request_id": "r2"}
            assert_refused(caller.post("/step", json=body, headers=headers), "JOURNAL_ERROR")
            assert talk(connection, "state")["data"]["step_count"] == 1
            assert talk(other, "state")["data"]["step_count"] == 0
        done = talk(connection, "step", LARGE, request_id="r2")["data"]
        assert done["metadata"] == {"step": 2}
        assert len(caller.get("/history", headers=headers).json()["steps"]) == 2
        assert talk(connection, "step", LARGE, request_id="r2")["data"] == done


def test_a_reset_on_a_full_disk_opens_no_session():
    with running("Echo-v0") as server, server.ws() as connection, server.http() as caller:
        with full_disk(server):
            assert_error(talk(connection, "reset", {"seed": 10**4000}), "JOURNAL_ERROR")
            assert_refused(caller.post("/reset", json={"seed": 10**4000}), "JOURNAL_ERROR")
            assert len(server.app.sessions) == 0
        assert talk(connection, "reset", {"seed": 1})["type"] == "observation"


def test_a_step_in_a_thread_gets_the_error_of_its_commit():
    """A commit for another session may write this step before its request waits for durability."""
    with running(own=slow_environments()) as server, server.ws() as connection:
        talk(connection, "reset", {"seed": 1})
        journal: Any = server.app.sessions.journal
        append = journal.append

        def append_and_commit(*arguments: Any) -> Any:
            ticket = append(*arguments)
            server.loop.call_soon_threadsafe(journal._commit_batch)
            return ticket

        journal.append = append_and_commit
        with full_disk(server):
            assert_error(talk(connection, "step", LARGE), "JOURNAL_ERROR")
        assert talk(connection, "state")["data"]["step_count"] == 0
        assert talk(connection, "step", LARGE)["data"]["metadata"] == {"step": 1}


def test_a_session_that_is_being_closed_is_not_found():
    with running(own=labs()) as server, server.http() as caller, server.http() as other:
        id = caller.post("/reset", json={"seed": 1}).headers["X-Session-Id"]
        headers = {"X-Session-Id": id}
        with ThreadPoolExecutor() as threads:
            stepping = threads.submit(caller.post, "/step", json={"action": {"value": SLEEP}})
            until(lambda: any(live.lock.is_locked for live in server.app.sessions._live.values()))  # pyright: ignore
            closing = threads.submit(other.post, "/close", headers=headers)
            until(lambda: not len(server.app.sessions))
            with server.http() as third:
                assert_refused(third.get("/state", headers=headers), "SESSION_ERROR")
            assert (stepping.result().status_code, closing.result().status_code) == (200, 200)


def test_a_recording_continues_only_in_its_own_folder(tmp_path: Path):
    def continue_in(folder: str, left: str) -> Any:
        return running("CartPole-v1", record=tmp_path / folder, journal=SqliteJournal(tmp_path / left))

    act = {"action": STEP}
    with running("CartPole-v1", record=tmp_path / "one") as server, server.http() as caller:
        id = caller.post("/reset", json={"seed": 1}).headers["X-Session-Id"]
        caller.post("/step", json=act)
        headers, path = {"X-Session-Id": id}, server.app.sessions.journal.path  # pyright: ignore
        left = [shutil.copy(f"{path}{end}", tmp_path / f"{name}{end}") for name in "ab" for end in ("", "-wal", "-log")]
        assert len(left) == 6
    with continue_in("one", "a") as server, server.http(headers=headers) as caller:
        assert caller.post("/step", json=act).status_code == 200
    with continue_in("two", "b") as server, server.http() as another, server.http(headers=headers) as caller:
        another.post("/reset", json={"seed": 5})
        assert_refused(caller.post("/step", json=act), "NOT_RECORDED")
        assert_refused(caller.post("/fork", json={}), "NOT_RECORDED")
        assert caller.post("/reset", json={"seed": 2}).status_code == 200
    assert [len(episode) for episode in Reader(tmp_path / "one" / "CartPole-v1")] == [2]
    assert [len(episode) for episode in Reader(tmp_path / "two" / "CartPole-v1")] == [0, 0]


def test_a_damaged_journal_is_rejected_and_not_changed(tmp_path: Path):
    path = tmp_path / "journal"
    path.write_bytes(b"something else, much longer than a page would have to be" * 100)
    with pytest.raises(ValidationError, match="not a database"):
        SqliteJournal(path)
    assert path.read_bytes().startswith(b"something else")
    other = tmp_path / "other"
    with closing(sqlite3.connect(other)) as file:
        file.execute("create table mine(x)")
    with pytest.raises(ValidationError, match="the database of another program"):
        SqliteJournal(other)
    with pytest.raises(ValidationError, match="can be written"):
        SqliteJournal(path / "below a file")


def test_damaged_pages_are_reported(tmp_path: Path):
    first = SqliteJournal(tmp_path / "journal")
    with running("Echo-v0", journal=first) as server, server.http() as caller:
        caller.post("/reset", json={"seed": 1})
        for _ in range(50):
            caller.post("/step", json={"action": {"message": "x" * 2000}})
    with (tmp_path / "journal").open("r+b") as file:
        file.seek(1024)
        file.write(os.urandom(60 * 1024))
    with pytest.raises(ValidationError, match="malformed"):
        SqliteJournal(tmp_path / "journal")


def test_only_one_server_can_open_a_journal(tmp_path: Path):
    first = SqliteJournal(tmp_path / "journal")
    with pytest.raises(ValidationError, match="no other server"):
        SqliteJournal(tmp_path / "journal")
    asyncio.run(first.close())
    asyncio.run(SqliteJournal(tmp_path / "journal").close())
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o600


def test_unused_sessions_are_deleted(tmp_path: Path):
    with running("Echo-v0", journal=SqliteJournal(tmp_path / "journal")) as server, server.http() as caller:
        caller.post("/reset", json={"seed": 1})
        caller.post("/step", json={"action": {"message": "x"}})
    asyncio.run(SqliteJournal(tmp_path / "journal", forget_after=0.0).close())
    with closing(sqlite3.connect(tmp_path / "journal")) as file:
        for table in ("sessions", "episodes", "log"):
            assert file.execute(f"select * from {table}").fetchall() == []


def test_durability_power_waits_for_shared_fsyncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ready, syncs, real = threading.Event(), list[int](), os.fdatasync

    def fdatasync(file: int) -> None:
        assert ready.wait(10)
        syncs.append(file)
        real(file)

    with running("Echo-v0", journal=SqliteJournal(tmp_path / "journal", "power")) as server, ExitStack() as held:
        connections = [held.enter_context(server.ws()) for _ in range(8)]
        for connection in connections:
            talk(connection, "reset")
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        for number, connection in enumerate(connections):
            connection.send(f'{{"type": "step", "data": {{"message": "{number}"}}}}')
        with pytest.raises(TimeoutError):
            connections[0].recv(0.3)
        ready.set()
        for number, connection in enumerate(connections):
            assert f'"echoed_message":"{number}"' in str(connection.recv(10))
    assert 1 <= len(syncs) <= 3


def test_a_failed_fsync_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fdatasync(file: int) -> None:
        raise OSError(5, "Input/output error")

    with running("Echo-v0", journal=SqliteJournal(tmp_path / "journal", "power")) as server, server.ws() as connection:
        talk(connection, "reset")
        with monkeypatch.context() as broken:
            broken.setattr(os, "fdatasync", fdatasync)
            received = assert_error(talk(connection, "step", {"message": "x"}, request_id="r"), "JOURNAL_ERROR")
            assert "Input/output error" in received["message"]
            written = (tmp_path / "journal-wal").stat().st_size
        assert written
        done = talk(connection, "step", {"message": "x"}, request_id="r")
        assert done["data"]["metadata"] == {"step": 1}  # once
        assert not (tmp_path / "journal-wal").stat().st_size  # the WAL was checkpointed before the error was sent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--durability", "off", "--journal", "x"], "none with --durability off"),
        (["--port", "0", "--durability", "power"], "--journal FILE as well"),
        (["--port", "0", "--journal", "/dev/null/x"], "a file that can be written"),
    ],
)
def test_contradictory_options_are_rejected(options: list[str], words: str):
    received = subprocess.run(
        [sys.executable, "-m", "tropism", "serve", "Echo-v0", *options], capture_output=True, text=True, check=False
    )
    assert received.returncode == 2
    assert words in " ".join(received.stderr.split())


def test_the_default_path_of_the_journal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_path("::1", 8000) == Path("/state/tropism/__1-8000.journal")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert default_path("127.0.0.1", 8000) == Path("/home/ada/.local/state/tropism/127.0.0.1-8000.journal")
