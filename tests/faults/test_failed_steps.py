"""A step that fails in the environment leaves the session where it was."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.faults.environments import FAILURES, RAISED, Careless, Order, UnrepeatableCareless, careless
from tests.serve.replies import assert_error, assert_refused
from tests.serve.running import Running, Servers, running, talk, until

from tropism import Session
from tropism.errors import StateError

REPLAYABLE = ("Careless", "InlineCareless")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(own=careless()) as server:
        yield server


def total(frame: dict[str, Any]) -> int:
    assert frame["type"] == "observation", frame
    return frame["data"]["observation"]["total"]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("id", REPLAYABLE)
def test_a_failed_step_changes_nothing(server: Running, id: str, failure: str):
    with server.ws(id) as connection:
        talk(connection, "reset")
        talk(connection, "step", {"amount": 5})
        error = assert_error(talk(connection, "step", {"amount": 100, "failure": failure}), "EXECUTION_ERROR")
        if failure in RAISED:
            assert type(RAISED[failure]).__name__ in error["message"]
        assert talk(connection, "state")["data"]["step_count"] == 1
        assert total(talk(connection, "step", {"amount": 1})) == 6
        assert [step["action"]["amount"] for step in talk(connection, "history")["data"]["steps"]] == [5, 1]


@pytest.mark.parametrize("failure", ["raise", "exit", "none", "unencodable"])
@pytest.mark.parametrize("id", REPLAYABLE)
def test_later_steps_survive_a_crash(tmp_path: Path, id: str, failure: str):
    with ExitStack() as started:
        servers = Servers(tmp_path, started, log_size=10, own=careless())
        with servers.now.ws(id) as connection:
            session = talk(connection, "reset")["data"]["session_id"]
            talk(connection, "step", {"amount": 5})
            talk(connection, "step", {"amount": 100, "failure": failure})
            talk(connection, "step", {"amount": 1})
        servers.crash()
        with servers.now.ws(id, f"?session_id={session}") as connection:
            assert talk(connection, "state")["data"]["step_count"] == 2
            assert total(talk(connection, "step", {"amount": 1})) == 7


@pytest.mark.parametrize("id", REPLAYABLE)
def test_a_failed_step_survives_idle_eviction(id: str):
    with running(own=careless(), idle_timeout=0.2) as server:
        with server.ws(id) as connection:
            session = talk(connection, "reset")["data"]["session_id"]
            talk(connection, "step", {"amount": 5})
            talk(connection, "step", {"amount": 100, "failure": "unencodable"})
        until(lambda: len(server.app.sessions) == 0)
        with server.ws(id, f"?session_id={session}") as connection:
            assert total(talk(connection, "step", {"amount": 1})) == 6


@pytest.mark.parametrize("failure", ["raise", "none", "unencodable"])
def test_an_episode_that_cannot_be_replayed_ends(server: Running, failure: str):
    with server.http("UnrepeatableCareless") as caller:
        caller.post("/reset", json={})
        caller.post("/step", json={"action": {"amount": 5}})
        assert_refused(caller.post("/step", json={"action": {"failure": failure}}), "EXECUTION_ERROR")
        assert_refused(caller.post("/step", json={"action": {"amount": 1}}), "STATE_ERROR")
        assert caller.post("/reset", json={}).status_code == 200
        assert caller.post("/step", json={"action": {"amount": 1}}).json()["observation"]["total"] == 1


def test_a_reset_continues_after_a_failed_step(server: Running):
    with server.ws("InlineCareless") as connection:
        talk(connection, "reset")
        talk(connection, "step", {"failure": "unencodable"})
        talk(connection, "reset")
        assert total(talk(connection, "step", {"amount": 3})) == 3


@pytest.mark.parametrize("failure", ["raise", "none", "interrupt", "mistyped"])
def test_a_local_session_stands_where_it_stood(failure: str):
    with Session(Careless) as session:
        session.reset()
        session.step(Order(amount=5))
        with pytest.raises(BaseException):  # noqa: B017, PT011  one of several
            session.step(Order(amount=100, failure=failure))
        assert (session.step_count, session.lifecycle.value) == (1, "ready")
        assert session.step(Order(amount=1)).obs.total == 6


def test_a_local_episode_that_cannot_be_replayed_ends():
    with Session(UnrepeatableCareless) as session:
        session.reset()
        with pytest.raises(RuntimeError, match="raised"):
            session.step(Order(failure="raise"))
        with pytest.raises(StateError, match="call reset"):
            session.step(Order())
        session.reset()
        assert session.step(Order(amount=2)).obs.total == 2
