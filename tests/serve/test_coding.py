"""Coding-v0 behind a server: isolated sessions, and a server that survives their code."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from tests.sandbox.processes import stable_count
from tests.serve.running import Running, running, talk

from tropism.client import Client
from tropism.envs.coding.coding import Coding
from tropism.wire.messages import CodeAction, CodeObservation

REASON = Coding.unavailable_reason()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("Coding-v0", "Echo-v0") as here:
        yield here


def test_health_lists_unavailable_environments(server: Running):
    with server.http() as http:
        assert http.get("/health").json()["absent"] == {}


def test_sessions_do_not_see_each_other(server: Running):
    with server.http("Coding-v0") as one, server.ws("Coding-v0") as other:
        one.post("/reset", json={"seed": 0})
        talk(other, "reset", {"seed": 0})
        one.post("/step", json={"action": {"code": "x = 1"}})
        assert "NameError" in talk(other, "step", {"code": "print(x)"})["data"]["observation"]["stderr"]
        assert one.post("/step", json={"action": {"text": "print(x)"}}).json()["observation"]["stdout"] == "1\n"


def test_a_session_can_be_forked(server: Running):
    with server.ws("Coding-v0") as socket:
        talk(socket, "reset", {"seed": 0})
        talk(socket, "step", {"code": "x = [1]"})
        twin = talk(socket, "fork", {"from": "now"})["data"]["session_id"]
        talk(socket, "step", {"code": "x.append(2)"})
        with server.ws("Coding-v0", f"?session_id={twin}") as fork:
            assert talk(fork, "step", {"code": "print(x)"})["data"]["observation"]["stdout"] == "[1]\n"


@pytest.mark.slow
def test_hanging_code_does_not_delay_other_sessions(server: Running):
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
        assert step.result().json()["metadata"]["timed_out"]
        died = hanging.post("/step", json={"action": {"code": "import os; os.abort()"}}).json()
        assert (died["observation"]["exit_code"], died["done"]) == (-6, False)


def test_a_killed_worker_affects_only_its_session(server: Running):
    with server.ws("Coding-v0") as one, server.ws("Coding-v0") as other, server.http() as http:
        for socket in (one, other):
            talk(socket, "reset", {"seed": 0})
            talk(socket, "step", {"code": "x = 1"})
        for live in list(server.app.sessions._live.values()):  # pyright: ignore[reportPrivateUsage]
            state = live.session._engine.state()  # pyright: ignore[reportPrivateUsage]
            if live.sockets and live.environment.id == "Coding-v0":
                os.kill(state.interpreter._sandbox._worker.pid, 9)
                break
        body = [
            talk(socket, "step", {"code": "print(x)"})["data"]["observation"]["exit_code"] for socket in (one, other)
        ]
        assert sorted(body) == [-9, 0]
        assert http.get("/health").json()["status"] == "healthy"


def test_health_reports_workers_that_do_not_start_until_they_do_again(server: Running, monkeypatch: pytest.MonkeyPatch):
    def absent() -> dict[str, str]:
        return http.get("/health").json()["absent"]

    with server.http() as http, server.http("Coding-v0") as coding:
        coding.post("/reset", json={"seed": 0})
        monkeypatch.delattr(os, "pidfd_open")
        assert coding.post("/step", json={"action": {"code": "1"}}).status_code == 500
        assert "pidfd_open" in absent()["Coding-v0"]
        monkeypatch.undo()
        deadline = time.monotonic() + 10
        while absent() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert absent() == {}
        assert coding.post("/step", json={"action": {"code": "print(1)"}}).json()["observation"]["stdout"] == "1\n"


@pytest.mark.slow
def test_a_step_given_up_after_its_timeout_leaves_no_worker(server: Running):
    with server.http("Coding-v0") as http, server.http() as root:
        http.post("/reset", json={"seed": 0})
        http.post("/step", json={"action": {"code": "x = 7"}})
        before = stable_count()
        for _ in range(3):
            late = {"action": {"code": "import time; time.sleep(60)"}, "timeout_s": 0.2}
            assert http.post("/step", json=late).status_code == 504
        assert http.post("/step", json={"action": {"code": "print(x)"}}).json()["observation"]["stdout"] == "7\n"
        assert stable_count() <= before
        assert 'tropism_errors_total{code="TIMEOUT"} 3' in root.get("/metrics").text


class TypedCodeObservation(BaseModel):
    """The fields that OpenEnv's coding client knows; any other is an error."""

    model_config = ConfigDict(extra="forbid")
    done: bool = False
    reward: bool | int | float | None = None
    metadata: dict[str, Any] = {}
    stdout: str
    stderr: str
    exit_code: int


def test_a_typed_client_knows_all_fields_and_ours_lifts_the_rest(server: Running):
    with server.ws("Coding-v0") as socket, Client(f"{server.url}/envs/Coding-v0") as client:
        talk(socket, "reset", {"seed": 0})
        reply = talk(socket, "step", {"code": "print(1)"})["data"]["observation"]
        assert TypedCodeObservation(**reply).metadata["timed_out"] is False
        client.reset(seed=0)
        ours = client.step(CodeAction(code="print(1)")).observation
        assert isinstance(ours, CodeObservation)
        assert (ours.stdout, ours.timed_out, ours.lost) == ("1\n", False, False)
        assert "timed_out" not in ours.metadata
        assert ours.metadata["step"] == 1
