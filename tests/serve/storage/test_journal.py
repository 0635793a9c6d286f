"""What was acknowledged outlives the server, whatever ends it."""

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
from tropism.serve.session import replay
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.json_form import JsonForm
from tropism.serve.storage import journal, memory, sqlite
from tropism.serve.storage.journal import Journal, default_path

copies = count()
STEP = {"value": 1}


class Moody(Lab):
    """Its observations depend on something that no seed decides."""

    def observation(self, state: Any) -> Any:
        return super().observation(state) + random()


def own(id: str, env: Any) -> dict[str, ServedEnvironment]:
    return {id: ServedEnvironment(id, env, env.default_params(), "A test's own.")}


def file_of(server: Running) -> Any:
    """The journal's own connection, as no server hands it out."""
    store: Any = server.app.sessions.store
    return store._log._file


@contextmanager
def after_a_crash(server: Running, *ids: str, **more: Any) -> Generator[Running]:
    """Another server, with what kill -9 would have left of this one's journal: what the operating system has."""
    path = server.app.sessions.store.path  # pyright: ignore
    left = path.parent / f"left-{next(copies)}"
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{left}{suffix}")
    with running(*ids, store=Journal(left), **more) as again:
        yield again


def drawn(session: Session, number: int) -> dict[str, Any]:
    """An action, as it is sent."""
    form, space = JsonForm(session), session.action_space
    return form.write_action(space.coerce(space.sample(jax.random.key(number))))


@pytest.mark.parametrize("id", mark_slow(PURE, {"CartPole-v1", "PlumeNavMeander-v0"}))
def test_an_episode_goes_on_bit_for_bit_after_a_crash(id: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replay, "CHECKPOINT_EVERY", 3)
    session = Session(*make(id))
    actions = [drawn(session, number) for number in range(5)]
    with running(id) as server, server.ws(id) as first:
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
            assert begun == anew  # the episodes after it too


MESSAGES = {
    "Echo-v0": [{"message": "one"}, {"message": "two"}, {"message": "three"}],
    "Chat-v0": [{"role": "user", "content": "hello"}] * 3,
    "Lab-v0": [{"value": STAY}] * 3,
}


@pytest.mark.parametrize("id", MESSAGES)
def test_so_does_one_of_a_host_environment(id: str):
    """After a crash, after another crash, and in a session that was put away meanwhile."""
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


def test_a_request_is_done_once_whatever_crashes_in_between():
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


def test_a_request_before_the_last_checkpoint_is_known_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replay, "CHECKPOINT_EVERY", 2)
    with running("CartPole-v1") as server, server.ws() as connection:
        id = talk(connection, "reset", {"seed": 1})["data"]["session_id"]
        replies = [talk(connection, "step", {"value": n % 2}, request_id=f"r{n}") for n in range(3)]
        with after_a_crash(server, "CartPole-v1") as again, again.ws(query=f"?session_id={id}") as resumed:
            refused = talk(resumed, "step", {"value": 0}, request_id="r0")
            assert "no longer stored" in assert_error(refused, "STATE_ERROR")["message"]
            assert talk(resumed, "step", {"value": 0}, request_id="r2") == replies[2]


def test_a_step_at_a_checkpoint_is_answered_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replay, "CHECKPOINT_EVERY", 2)
    with running("CartPole-v1") as server, server.ws() as connection:
        id = talk(connection, "reset", {"seed": 1})["data"]["session_id"]
        replies = [talk(connection, "step", STEP, request_id=f"r{number}") for number in range(2)]
        with after_a_crash(server, "CartPole-v1") as again, again.ws(query=f"?session_id={id}") as resumed:
            assert talk(resumed, "step", STEP, request_id="r1") == replies[1]
            assert talk(resumed, "state")["data"]["step_count"] == 2


def test_a_fork_knows_nothing_of_what_its_parent_was_asked():
    with running("CartPole-v1") as server, server.ws() as connection:
        talk(connection, "reset", {"seed": 1})
        talk(connection, "step", STEP, request_id="r1")
        fork = talk(connection, "fork", {"from": "now"})["data"]["session_id"]
        with after_a_crash(server, "CartPole-v1") as again, again.ws(query=f"?session_id={fork}") as resumed:
            assert talk(resumed, "step", STEP, request_id="r1")["type"] == "observation"
            assert talk(resumed, "state")["data"]["step_count"] == 2


def test_snapshots_and_forks_outlive_a_crash():
    with running("CartPole-v1") as server, server.ws() as connection:
        id = talk(connection, "reset", {"seed": 6})["data"]["session_id"]
        talk(connection, "step", STEP)
        snapshot = talk(connection, "snapshot")["data"]["snapshot_id"]
        ahead = talk(connection, "step", STEP)["data"]
        fork = talk(connection, "fork", {"from": snapshot, "seed": 4})["data"]["session_id"]
        talk(connection, "reset", {"seed": 9})  # an episode that the snapshot is not of
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


def test_what_a_long_log_held_is_found_again(monkeypatch: pytest.MonkeyPatch):
    """Entries leave the log for where they are found by session; of episodes that are over, none do."""
    monkeypatch.setattr(sqlite, "LONGEST_LOG", 5)
    with running("Echo-v0") as server, server.ws() as first, server.ws() as second:
        ids = [talk(connection, "reset")["data"]["session_id"] for connection in (first, second)]
        for number in range(8):
            for connection in (first, second):
                talk(connection, "step", {"message": f"{number}"})
        talk(second, "reset")
        talk(second, "step", {"message": "last"})
        rows = file_of(server).execute("select count(*) from log").fetchone()[0]
        assert rows < 5
        with after_a_crash(server, "Echo-v0") as again:
            for id, connection in zip(ids, (first, second), strict=True):
                with again.ws(query=f"?session_id={id}") as resumed:
                    assert talk(resumed, "history") == talk(connection, "history")


def test_of_an_endless_episode_the_middle_is_let_go(monkeypatch: pytest.MonkeyPatch):
    for module in (memory, journal):
        monkeypatch.setattr(module, "MAX_ENTRIES", 10)
    monkeypatch.setattr(replay, "CHECKPOINT_EVERY", 7)
    monkeypatch.setattr(sqlite, "LONGEST_LOG", 3)
    with running("Pendulum-v1") as server, server.ws() as connection:
        id = talk(connection, "reset", {"seed": 2})["data"]["session_id"]
        for _ in range(60):
            talk(connection, "step", {"value": [0.5]})
        pieces = file_of(server).execute("select first, last from episodes order by first").fetchall()
        assert sum(last - first + 1 for first, last in pieces) < 30
        with after_a_crash(server, "Pendulum-v1") as again, again.ws(query=f"?session_id={id}") as resumed:
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
        assert file_of(server).execute("select * from sessions").fetchall() == []


def test_nobody_else_takes_a_session_up():
    tokens = ("ours", "theirs")
    with running("Echo-v0", tokens=tokens) as server, server.http(headers={"Authorization": "Bearer ours"}) as caller:
        id = caller.post("/reset", json={}).headers["X-Session-Id"]
        with after_a_crash(server, "Echo-v0", tokens=tokens) as again:
            for token, status in (("theirs", 404), ("ours", 200)):
                headers = {"Authorization": f"Bearer {token}", "X-Session-Id": id}
                with again.http(headers=headers) as other:
                    assert other.get("/state").status_code == status
        said = "\n".join(file_of(server).iterdump())
        assert id not in said
        assert "ours" not in said


def test_an_episode_that_does_not_repeat_stops():
    environments = own("Moody-v0", Moody())
    with running(own=environments) as server, server.http() as caller:
        id = caller.post("/reset", json={"seed": 1}).headers["X-Session-Id"]
        with after_a_crash(server, own=environments) as again, again.http(headers={"X-Session-Id": id}) as other:
            for _ in range(2):
                told = assert_refused(other.post("/step", json={"action": {"value": STAY}}), "DIVERGED")
                assert "in the replay of this episode of Moody-v0, the reply to the reset" in told["message"]
            with again.ws(query=f"?session_id={id}") as resumed:
                assert "DIVERGED" in str(resumed.recv(10))
            del other.headers["X-Session-Id"]
            other.cookies["tropism.Moody-v0"] = id
            assert_refused(other.get("/state"), "DIVERGED")
            assert other.post("/reset", json={}).headers["X-Session-Id"] != id  # the cookie holds nobody back


def test_what_cannot_be_replayed_is_refused_with_words():
    with running(own=labs()) as server, server.http("Unwritable-v0") as caller:
        id = caller.post("/reset", json={"seed": 1}).headers["X-Session-Id"]
        with after_a_crash(server, own=labs()) as again, again.http("Unwritable-v0") as other:
            told = other.post("/step", json={"action": {"value": STAY}}, headers={"X-Session-Id": id})
            assert "ended with the server" in assert_refused(told, "SESSION_ERROR")["message"]


def test_a_session_does_not_go_on_under_other_params():
    with running("CartPole-v1") as server, server.http() as caller:
        id = caller.post("/reset", json={"seed": 1}).headers["X-Session-Id"]
        moon = load_environments(["CartPole-v1"], params={"gravity": 1.6})
        with after_a_crash(server, own=moon) as again, again.http(headers={"X-Session-Id": id}) as other:
            told = assert_refused(other.post("/step", json={"action": STEP}), "DIVERGED")
            assert "other arguments or params" in told["message"]


@contextmanager
def full(server: Running) -> Generator[None]:
    """The disk has no more room."""
    connection = file_of(server)
    (pages,) = connection.execute("pragma page_count").fetchone()
    connection.execute(f"pragma max_page_count = {pages}")
    try:
        yield
    finally:
        connection.execute("pragma max_page_count = 1073741823")


def in_a_thread() -> dict[str, ServedEnvironment]:
    slow = ServedEnvironment("Slow-v0", *make("Echo-v0"), "Echo in a thread.")
    slow._warm_up = lambda: False  # pyright: ignore
    return {"Slow-v0": slow}


LARGE = {"message": "x" * 20_000}  # more than what is left of a page


@pytest.mark.parametrize("id", ["Echo-v0", "Slow-v0"])
def test_on_a_full_disk_a_step_is_refused_and_nothing_is_lost(id: str):
    """Inline, and in a thread; over a socket, and over HTTP."""
    with running(own=load_environments(["Echo-v0"]) | in_a_thread()) as server, ExitStack() as held:
        connection, other = (held.enter_context(server.ws(id)) for _ in range(2))
        caller = held.enter_context(server.http(id))
        session = talk(connection, "reset", {"seed": 1})["data"]["session_id"]
        talk(other, "reset", {"seed": 2})
        talk(connection, "step", {"message": "one"}, request_id="r1")
        headers = {"X-Session-Id": session}
        with full(server):
            told = assert_error(talk(connection, "step", LARGE, id=5, request_id="r2"), "JOURNAL_ERROR")
            assert "full" in told["message"]
            body = {"action": LARGE, "request_id": "r2"}
            assert_refused(caller.post("/step", json=body, headers=headers), "JOURNAL_ERROR")
            assert talk(connection, "state")["data"]["step_count"] == 1
            assert talk(other, "state")["data"]["step_count"] == 0
        done = talk(connection, "step", LARGE, request_id="r2")["data"]
        assert done["metadata"] == {"step": 2}
        assert len(caller.get("/history", headers=headers).json()["steps"]) == 2
        assert talk(connection, "step", LARGE, request_id="r2")["data"] == done


def test_a_reset_on_a_full_disk_leaves_nothing_behind():
    with running("Echo-v0") as server, server.ws() as connection, server.http() as caller:
        with full(server):
            assert_error(talk(connection, "reset", {"seed": 10**4000}), "JOURNAL_ERROR")
            assert_refused(caller.post("/reset", json={"seed": 10**4000}), "JOURNAL_ERROR")
            assert len(server.app.sessions) == 0
        assert talk(connection, "reset", {"seed": 1})["type"] == "observation"


def test_a_failure_is_heard_by_a_step_that_ran_in_a_thread_too():
    """Another session's turn may end, and with it the writing of this step, before anybody waits for it."""
    with running(own=in_a_thread()) as server, server.ws() as connection:
        talk(connection, "reset", {"seed": 1})
        store: Any = server.app.sessions.store
        append = store.append

        def append_and_end_the_turn(*arguments: Any) -> None:
            append(*arguments)
            server.loop.call_soon_threadsafe(store._commit_batch)

        store.append = append_and_end_the_turn
        with full(server):
            assert_error(talk(connection, "step", LARGE), "JOURNAL_ERROR")
        assert talk(connection, "state")["data"]["step_count"] == 0
        assert talk(connection, "step", LARGE)["data"]["metadata"] == {"step": 1}


def test_who_looks_for_a_session_that_is_being_closed_does_not_find_it():
    with running(own=labs()) as server, server.http() as caller, server.http() as other:
        id = caller.post("/reset", json={"seed": 1}).headers["X-Session-Id"]
        headers = {"X-Session-Id": id}
        with ThreadPoolExecutor() as threads:
            stepping = threads.submit(caller.post, "/step", json={"action": {"value": SLEEP}})
            until(lambda: any(live.lock.locked for live in server.app.sessions._live.values()))  # pyright: ignore
            closing = threads.submit(other.post, "/close", headers=headers)
            until(lambda: not len(server.app.sessions))
            with server.http() as third:
                assert_refused(third.get("/state", headers=headers), "SESSION_ERROR")
            assert (stepping.result().status_code, closing.result().status_code) == (200, 200)


def test_a_recording_goes_on_in_its_own_folder_only(tmp_path: Path):
    def going_on(folder: str, left: str) -> Any:
        return running("CartPole-v1", record=tmp_path / folder, store=Journal(tmp_path / left))

    act = {"action": STEP}
    with running("CartPole-v1", record=tmp_path / "one") as server, server.http() as caller:
        id = caller.post("/reset", json={"seed": 1}).headers["X-Session-Id"]
        caller.post("/step", json=act)
        headers, path = {"X-Session-Id": id}, server.app.sessions.store.path  # pyright: ignore
        left = [shutil.copy(f"{path}{end}", tmp_path / f"{name}{end}") for name in "ab" for end in ("", "-wal")]
        assert len(left) == 4
    with going_on("one", "a") as server, server.http(headers=headers) as caller:
        assert caller.post("/step", json=act).status_code == 200
    with going_on("two", "b") as server, server.http() as another, server.http(headers=headers) as caller:
        another.post("/reset", json={"seed": 5})
        assert_refused(caller.post("/step", json=act), "NOT_RECORDED")
        assert_refused(caller.post("/fork", json={}), "NOT_RECORDED")
        assert caller.post("/reset", json={"seed": 2}).status_code == 200
    assert [len(episode) for episode in Reader(tmp_path / "one" / "CartPole-v1")] == [2]
    assert [len(episode) for episode in Reader(tmp_path / "two" / "CartPole-v1")] == [0, 0]


def test_a_damaged_journal_is_refused_and_left_as_it_is(tmp_path: Path):
    path = tmp_path / "journal"
    path.write_bytes(b"something else, much longer than a page would have to be" * 100)
    with pytest.raises(ValidationError, match="not a database"):
        Journal(path)
    assert path.read_bytes().startswith(b"something else")
    other = tmp_path / "other"
    with closing(sqlite3.connect(other)) as file:
        file.execute("create table mine(x)")
    with pytest.raises(ValidationError, match="a journal of this version"):
        Journal(other)
    with pytest.raises(ValidationError, match="can be written"):
        Journal(path / "below a file")


def test_pages_that_were_damaged_are_told(tmp_path: Path):
    first = Journal(tmp_path / "journal")
    with running("Echo-v0", store=first) as server, server.http() as caller:
        caller.post("/reset", json={"seed": 1})
        for _ in range(50):
            caller.post("/step", json={"action": {"message": "x" * 2000}})
    with (tmp_path / "journal").open("r+b") as file:
        file.seek(20 * 1024)
        file.write(os.urandom(60 * 1024))
    with pytest.raises(ValidationError, match="one that is not damaged"):
        Journal(tmp_path / "journal")


def test_one_server_has_the_journal(tmp_path: Path):
    first = Journal(tmp_path / "journal")
    with pytest.raises(ValidationError, match="no other server"):
        Journal(tmp_path / "journal")
    first.close()
    Journal(tmp_path / "journal").close()
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o600


def test_sessions_that_nobody_came_back_to_are_forgotten(tmp_path: Path):
    with running("Echo-v0", store=Journal(tmp_path / "journal")) as server, server.http() as caller:
        caller.post("/reset", json={"seed": 1})
        caller.post("/step", json={"action": {"message": "x"}})
    Journal(tmp_path / "journal", forget_after=0.0).close()
    with closing(sqlite3.connect(tmp_path / "journal")) as file:
        for table in ("sessions", "episodes", "log"):
            assert file.execute(f"select * from {table}").fetchall() == []


def test_power_answers_when_the_disk_has_it_and_shares_its_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ready, syncs, real = threading.Event(), list[int](), os.fdatasync

    def fdatasync(file: int) -> None:
        assert ready.wait(10)
        syncs.append(file)
        real(file)

    with running("Echo-v0", store=Journal(tmp_path / "journal", "power")) as server, ExitStack() as held:
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


def test_a_disk_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fdatasync(file: int) -> None:
        raise OSError(5, "Input/output error")

    with running("Echo-v0", store=Journal(tmp_path / "journal", "power")) as server, server.ws() as connection:
        talk(connection, "reset")
        with monkeypatch.context() as broken:
            broken.setattr(os, "fdatasync", fdatasync)
            told = assert_error(talk(connection, "step", {"message": "x"}, request_id="r"), "JOURNAL_ERROR")
            assert "Input/output error" in told["message"]
            written = (tmp_path / "journal-wal").stat().st_size
        assert written
        done = talk(connection, "step", {"message": "x"}, request_id="r")
        assert done["data"]["metadata"] == {"step": 1}  # once
        assert not (tmp_path / "journal-wal").stat().st_size  # it was written elsewhere before it was told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--durability", "off", "--journal", "x"], "none with --durability off"),
        (["--port", "0", "--durability", "power"], "--journal FILE beside it"),
        (["--port", "0", "--journal", "/dev/null/x"], "a file that can be written"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: list[str], words: str):
    told = subprocess.run(
        [sys.executable, "-m", "tropism", "serve", "Echo-v0", *options], capture_output=True, text=True, check=False
    )
    assert told.returncode == 2
    assert words in " ".join(told.stderr.split())


def test_where_sessions_are_kept_by_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_path("::1", 8000) == Path("/state/tropism/__1-8000.journal")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert default_path("127.0.0.1", 8000) == Path("/home/ada/.local/state/tropism/127.0.0.1-8000.journal")
