"""Clients that know nothing of sessions resume theirs: the base URL or a header names it."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.faults.journals import echo
from tests.serve.replies import assert_error
from tests.serve.running import Running, Servers, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("Echo-v0", "CartPole-v1") as server:
        yield server


def open_session(server: Running) -> str:
    with server.http("Echo-v0") as caller:
        return caller.post("/reset", json={"seed": 1}).headers["X-Session-Id"]


def test_a_base_url_names_its_session(server: Running):
    session = open_session(server)
    for number in (1, 2):
        with server.ws(f"Echo-v0/s/{session}") as connection:  # another socket each time
            assert echo(connection)["data"]["step_count"] == number
    with server.http(f"Echo-v0/s/{session}") as caller:
        assert caller.post("/step", json={"action": {"message": "a"}}).json()["step_count"] == 3
        assert caller.get("/state").json()["step_count"] == 3
        assert caller.get("/schema").status_code == 200


def test_a_header_names_the_session_of_a_socket(server: Running):
    session = open_session(server)
    with server.ws("Echo-v0", additional_headers={"X-Session-Id": session}) as connection:
        assert echo(connection)["data"]["step_count"] == 1


@pytest.mark.parametrize("id", ["Echo-v0/s/unknown", "CartPole-v1/s/{session}"])
def test_an_unknown_session_is_an_error(server: Running, id: str):
    with server.ws(id.format(session=open_session(server))) as connection:
        assert_error(json.loads(connection.recv(10)), "SESSION_ERROR")


def test_a_base_url_survives_a_restart(tmp_path: Path):
    with ExitStack() as started:
        servers = Servers(tmp_path, started, "Echo-v0", log_size=100)
        session = open_session(servers.now)
        with servers.now.ws(f"Echo-v0/s/{session}") as connection:
            echo(connection)
        servers.crash()
        with servers.now.ws(f"Echo-v0/s/{session}") as connection:
            assert echo(connection)["data"]["step_count"] == 2
