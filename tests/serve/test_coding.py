"""Coding-v0 behind a server: sessions apart from each other, and a server that no code takes down."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.serve.running import Running, running, talk

from tropism.envs.coding.coding import Coding

REASON = Coding.absence()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("Coding-v0", "Echo-v0") as here:
        yield here


def test_health_names_what_is_absent(server: Running):
    with server.http() as http:
        assert http.get("/health").json()["absent"] == {}


def test_sessions_do_not_see_each_other(server: Running):
    with server.http("Coding-v0") as one, server.ws("Coding-v0") as other:
        one.post("/reset", json={"seed": 0})
        talk(other, "reset", {"seed": 0})
        one.post("/step", json={"action": {"code": "x = 1"}})
        assert "NameError" in talk(other, "step", {"code": "print(x)"})["data"]["observation"]["stderr"]
        assert one.post("/step", json={"action": {"text": "print(x)"}}).json()["observation"]["stdout"] == "1\n"


def test_a_session_is_forked_by_its_transcript(server: Running):
    with server.ws("Coding-v0") as socket:
        talk(socket, "reset", {"seed": 0})
        talk(socket, "step", {"code": "x = [1]"})
        twin = talk(socket, "fork", {"from": "now"})["data"]["session_id"]
        talk(socket, "step", {"code": "x.append(2)"})
        with server.ws("Coding-v0", f"?session_id={twin}") as fork:
            assert talk(fork, "step", {"code": "print(x)"})["data"]["observation"]["stdout"] == "[1]\n"


@pytest.mark.slow
def test_code_that_hangs_or_dies_is_an_observation_and_nobody_waits(server: Running):
    with server.http("Coding-v0") as hanging, server.http("Echo-v0") as echo, ThreadPoolExecutor(1) as thread:
        for caller in (hanging, echo):
            caller.post("/reset", json={"seed": 0})
        step = thread.submit(hanging.post, "/step", json={"action": {"code": "while True: pass"}})
        slowest = 0.0
        for _ in range(20):
            start = time.monotonic()
            assert echo.post("/step", json={"action": {"message": "hi"}}).json()["reward"] == pytest.approx(0.2)
            slowest = max(slowest, time.monotonic() - start)
        assert slowest < 2
        assert not step.done()
        assert step.result().json()["observation"]["timed_out"]
        died = hanging.post("/step", json={"action": {"code": "import os; os.abort()"}}).json()
        assert (died["observation"]["exit_code"], died["done"]) == (-6, False)


def test_a_worker_killed_from_outside_takes_neither_server_nor_neighbour(server: Running):
    with server.ws("Coding-v0") as one, server.ws("Coding-v0") as other, server.http() as http:
        for socket in (one, other):
            talk(socket, "reset", {"seed": 0})
            talk(socket, "step", {"code": "x = 1"})
        for served in list(server.app.sessions._live.values()):  # pyright: ignore[reportPrivateUsage]
            state = served.session._engine.state()  # pyright: ignore[reportPrivateUsage]
            if served.sockets and served.environment.id == "Coding-v0":
                os.kill(state.interpreter._sandbox._worker.pid, 9)
                break
        told = [
            talk(socket, "step", {"code": "print(x)"})["data"]["observation"]["exit_code"] for socket in (one, other)
        ]
        assert sorted(told) == [-9, 0]
        assert http.get("/health").json()["status"] == "healthy"
