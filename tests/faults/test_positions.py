"""A step is applied only where its caller expects the episode to be."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.journals import copy_journal, echo, flip_bit, killed_journal, last_commit_offset, play_echo, resumed
from tests.serve.replies import assert_error
from tests.serve.running import Running, running, talk

from tropism.client import Client
from tropism.errors import StepConflictError
from tropism.serve.storage.sqlite import SqliteJournal
from tropism.serve.storage.wal import HEADER


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("Echo-v0", "CartPole-v1") as server:
        yield server


@pytest.mark.parametrize(("id", "action"), [("Echo-v0", {"message": "a"}), ("CartPole-v1", {"value": 1})])
def test_every_reply_has_the_step_count(server: Running, id: str, action: dict[str, object]):
    with server.ws(id) as connection:
        assert talk(connection, "reset", {"seed": 1})["data"]["step_count"] == 0
        assert talk(connection, "step", action)["data"]["step_count"] == 1
        for kind in ("state", "snapshot", "fork", "history"):
            assert talk(connection, kind)["data"]["step_count"] == 1, kind
        snapshot = talk(connection, "snapshot")["data"]["snapshot_id"]
        talk(connection, "step", action)
        assert talk(connection, "restore", {"from": snapshot})["data"]["step_count"] == 1
    with server.http(id) as caller:
        assert caller.post("/reset", json={}).json()["step_count"] == 0
        assert caller.post("/step", json={"action": action}).json()["step_count"] == 1
        assert caller.post("/close").json()["step_count"] == 1


def test_a_step_for_another_position_is_refused(server: Running):
    with server.ws() as connection:
        talk(connection, "reset")
        assert echo(connection, after=0)["data"]["step_count"] == 1
        for after in (0, 2):
            assert assert_error(echo(connection, after=after), "STEP_CONFLICT")["step_count"] == 1
        assert echo(connection, after=1)["data"]["step_count"] == 2
    with server.http() as caller:
        caller.post("/reset", json={})
        refused = caller.post("/step", json={"action": {"message": "a"}, "after": 3})
        assert (refused.status_code, refused.json()["step_count"]) == (409, 0)


def test_a_step_of_another_episode_is_refused(server: Running):
    with server.ws() as connection:
        first = talk(connection, "reset")["data"]["episode_id"]
        second = talk(connection, "reset")["data"]["episode_id"]
        assert_error(echo(connection, after=0, episode_id=first), "STEP_CONFLICT")
        assert echo(connection, after=0, episode_id=second)["data"]["step_count"] == 1


def test_a_repeated_request_gets_its_reply_wherever_the_episode_is(server: Running):
    with server.ws() as connection:
        talk(connection, "reset")
        first = echo(connection, after=0, request_id="r")
        assert echo(connection, after=0, request_id="r") == first
        assert talk(connection, "state")["data"]["step_count"] == 1


def test_only_a_step_has_a_position(server: Running):
    with server.ws() as connection:
        talk(connection, "reset")
        assert_error(talk(connection, "state", after=0), "VALIDATION_ERROR")


def test_a_client_notices_that_another_one_stepped(server: Running):
    with Client(server.url) as client:
        client.reset(seed=1)
        client.step({"message": "a"})
        with server.ws(query=f"?session_id={client.session_id}") as other:
            echo(other)
        with pytest.raises(StepConflictError, match="at step 2, not 1") as refused:
            client.step({"message": "b"})
        assert refused.value.step_count == 2
        with pytest.raises(StepConflictError):
            client.step({"message": "b"})
        assert client.state().step_count == 2
        client.step({"message": "b"})


def test_a_reboot_under_process_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path, session = killed_journal(tmp_path, play_echo(8), boot_id="first")
    with caplog.at_level(logging.WARNING), running("Echo-v0", journal=SqliteJournal(path, boot_id="second")) as server:
        assert "commits may be lost" in caplog.text
        with server.ws(query=f"?session_id={session}") as connection:
            assert assert_error(echo(connection), "STEP_CONFLICT")["step_count"] == 8
            assert_error(echo(connection, after=10), "STEP_CONFLICT")
            assert echo(connection, after=8)["data"]["step_count"] == 9
            assert echo(connection)["data"]["step_count"] == 10


def test_a_session_stays_doubtful_until_its_position_is_confirmed(tmp_path: Path):
    path, session = killed_journal(tmp_path, play_echo(3), boot_id="first")
    with running("Echo-v0", journal=SqliteJournal(path, boot_id="second")):
        pass
    with (
        running("Echo-v0", journal=SqliteJournal(path, boot_id="second")) as server,
        server.ws(query=f"?session_id={session}") as connection,
    ):
        assert_error(echo(connection), "STEP_CONFLICT")
        assert talk(connection, "reset")["data"]["step_count"] == 0
        assert echo(connection)["data"]["step_count"] == 1


@pytest.mark.parametrize(("durability", "boot"), [("power", "second"), ("process", "first")])
def test_without_lost_commits_a_step_needs_no_position(tmp_path: Path, durability: str, boot: str):
    path, session = killed_journal(tmp_path, play_echo(3), boot_id="first", durability=durability)
    with (
        running("Echo-v0", journal=SqliteJournal(path, boot_id=boot)) as server,
        server.ws(query=f"?session_id={session}") as connection,
    ):
        assert echo(connection)["data"]["step_count"] == 4


def test_a_reboot_after_a_shutdown_loses_nothing(tmp_path: Path):
    with running("Echo-v0", journal=SqliteJournal(tmp_path / "journal", boot_id="first")) as server:
        session = play_echo(3)(server)
    with (
        running("Echo-v0", journal=SqliteJournal(tmp_path / "journal", boot_id="second")) as server,
        server.ws(query=f"?session_id={session}") as connection,
    ):
        assert echo(connection)["data"]["step_count"] == 4


@pytest.mark.parametrize("place", ["log", "frame", "header"])
def test_damaged_logs_are_noticed(tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture):
    """After a flipped bit, SQLite would discard later commits without a word, and so would the log of entries."""
    with running("Echo-v0", journal=SqliteJournal(tmp_path / "running")) as server:
        session = play_echo(8)(server)
        with server.ws(query=f"?session_id={session}") as connection:
            talk(connection, "snapshot")  # a commit in the write-ahead log
            echo(connection)
            echo(connection)
        path = copy_journal(tmp_path / "running", tmp_path / "killed")
    if place == "log":
        flip_bit(Path(f"{path}-log"), Path(f"{path}-log").stat().st_size - 10)
    else:
        wal = Path(f"{path}-wal")
        flip_bit(wal, HEADER.size - 1 if place == "header" else last_commit_offset(wal))
    with caplog.at_level(logging.ERROR), running("Echo-v0", journal=SqliteJournal(path)) as server:
        assert "commits were discarded" in caplog.text
        with server.ws(query=f"?session_id={session}") as connection:
            if place == "header":  # with all commits, the session is gone
                assert_error(resumed(connection), "SESSION_ERROR")
                return
            count = assert_error(echo(connection), "STEP_CONFLICT")["step_count"]
            assert count == (9 if place == "log" else 10)
            assert_error(echo(connection, after=11), "STEP_CONFLICT")
            assert echo(connection, after=count)["data"]["step_count"] == count + 1
