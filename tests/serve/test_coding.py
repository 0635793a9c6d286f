"""Coding-v0 behind a server: isolated sessions, and a server that survives their code."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from tests.sandbox.processes import stable_count
from tests.serve.replies import assert_error, assert_refused
from tests.serve.running import Running, Servers, running, talk

from tropism.client import Client
from tropism.envs.coding.coding import Coding
from tropism.envs.coding.tasks import Task
from tropism.sandbox.pool import SESSION_MEMORY
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.sqlite import LOG_SIZE
from tropism.wire.messages.coding import CodeAction, CodeObservation

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


def test_the_state_has_the_last_exit_code(server: Running):
    with server.http("Coding-v0") as http:
        http.post("/reset", json={"seed": 0})
        assert http.get("/state").json()["last_exit_code"] == 0
        http.post("/step", json={"action": {"code": "1 / 0"}})
        assert http.get("/state").json()["last_exit_code"] == 1


def test_sessions_are_limited_by_the_memory_of_the_machine(monkeypatch: pytest.MonkeyPatch):
    memory = {"SC_PHYS_PAGES": 2 * 2 * SESSION_MEMORY // 4096, "SC_PAGE_SIZE": 4096}  # half of it is for two sessions
    monkeypatch.setattr(os, "sysconf", memory.__getitem__)
    with running("Coding-v0", "Echo-v0") as server, ExitStack() as callers:
        one, two = (callers.enter_context(server.ws("Coding-v0")) for _ in range(2))  # attached: they are not evicted
        three = callers.enter_context(server.http("Coding-v0"))
        ids = [talk(socket, "reset", {"seed": 0})["data"]["session_id"] for socket in (one, two)]
        assert "memory for 2 sessions" in assert_refused(three.post("/reset", json={}), "CAPACITY_REACHED")["message"]
        assert_error(talk(one, "fork", {"from": "now"}), "CAPACITY_REACHED")
        with server.http("Echo-v0") as echo:
            assert echo.post("/reset", json={}).status_code == 200
        with server.http("Coding-v0", headers={"X-Session-Id": ids[0]}) as other:
            assert other.post("/close", json={}).status_code == 200
        assert three.post("/reset", json={}).status_code == 200
        assert len(set(ids)) == 2


def test_a_grade_is_recorded_and_survives_a_restart(tmp_path: Path):
    task = Task("chance", "Write f().", ("f",), ("assert f() == 1",) * 16, submissions=3, feedback=True)
    env = Coding(tasks=(task,))
    own = {"Chance-v0": ServedEnvironment("Chance-v0", env, env.default_params(), "Graded by chance.")}
    submission = {"action": {"code": "import os\ndef f(): return os.urandom(1)[0] % 2", "submit": True}}
    with ExitStack() as started:
        servers = Servers(tmp_path, started, own=own, log_size=LOG_SIZE)
        with servers.now.http("Chance-v0") as http:
            id = http.post("/reset", json={"seed": 0}).json()["session_id"]
            graded = http.post("/step", json=submission | {"request_id": "1"}).json()
        servers.crash()
        with servers.now.http("Chance-v0", headers={"X-Session-Id": id}) as http:
            assert http.post("/step", json=submission | {"request_id": "1"}).json() == graded
            assert http.get("/history").json()["steps"][0]["reward"] == graded["reward"]
            fork = http.post("/fork", json={}).json()["session_id"]
        with servers.now.http("Chance-v0", headers={"X-Session-Id": fork}) as http:
            assert http.get("/state").json()["step_count"] == 1


@pytest.mark.slow
def test_slow_forks_do_not_delay_the_forks_of_others(server: Running):
    with ExitStack() as callers, ThreadPoolExecutor(8) as threads:
        slow = [callers.enter_context(server.http("Coding-v0")) for _ in range(8)]
        other = callers.enter_context(server.http("Coding-v0"))
        for http in (*slow, other):
            http.post("/reset", json={"seed": 0})
        other.post("/step", json={"action": {"code": "x = 1"}})
        wait = {"action": {"code": "import time; time.sleep(4)"}}
        list(threads.map(lambda http: http.post("/step", json=wait), slow))
        forks = [threads.submit(http.post, "/fork", json={}) for http in slow]  # each sleeps again
        assert other.post("/fork", json={}).status_code == 200
        assert not any(fork.done() for fork in forks)
        assert [fork.result().status_code for fork in forks] == [200] * 8


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
