"""Sessions in their own processes, behind a real server: a crash affects only one, and none is left over."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.isolation import fragile
from tests.isolation.fragile import SECRET, STAY, Fragile, Unrepeatable
from tests.serve.running import Running, process, running, talk, until

from tropism.core.registry import make, registered
from tropism.isolation import IsolatedEnvironment
from tropism.serve.session.environment import ServedEnvironment

SERVE = ("-m", "tropism", "serve", "tests.isolation.fragile:Fragile", "--processes", "--port", "0")
NAMED = ("session_id", "view", "agent_id", "episode_id", "snapshot_id", "id")


def fragiles() -> dict[str, ServedEnvironment]:
    environments = (("Fragile-v0", Fragile()), ("Unrepeatable-v0", Unrepeatable()))
    return {id: ServedEnvironment(id, env, env.default_params(), "A test's own.") for id, env in environments}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(own=fragiles(), processes=True) as server:
        yield server


def act(action: int, **more: Any) -> dict[str, Any]:
    return {"action": {"value": action}, **more}


def child_processes(pid: int) -> set[int]:
    """The episode processes that this process has started, and the fork server."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if b"tropism.isolation" in path.with_name("cmdline").read_bytes():
                parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    nurseries = {child for child, parent in parents.items() if parent == pid}
    return nurseries | {child for child, parent in parents.items() if parent in nurseries}


def have_exited(pids: set[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def without_ids(reply: Any) -> Any:
    if isinstance(reply, dict):
        return {name: without_ids(value) for name, value in reply.items() if name not in NAMED}
    return [without_ids(value) for value in reply] if isinstance(reply, list) else reply


def record_conversation(server: Running) -> list[Any]:
    """Every kind of request, with its reply."""
    said: list[Any] = []
    with server.ws("Fragile-v0") as connection:

        def ask(kind: str, data: Any = None) -> Any:
            said.append(talk(connection, kind, data))
            return said[-1]["data"]

        view = ask("reset", {"seed": 5, "options": {"params": {"gain": 3.0}}})["view"]
        ask("step", {"value": STAY})
        ask("step", {"text": "stay"})
        snapshot = ask("snapshot")["snapshot_id"]
        ask("step", {"value": fragile.REFUSE})
        ask("step", {"value": 99})
        ask("step", {"value": STAY})
        forked = ask("fork", {"from": {"step": 1}, "seed": 8})["session_id"]
        ask("restore", {"from": snapshot})
        ask("step", {"value": fragile.END})
        ask("step", {"value": STAY})
        ask("history")
        with server.http("Fragile-v0") as caller:
            said.append(caller.post("/step", json=act(STAY), headers={"X-Session-Id": forked}).json())
            said.append(caller.get(f"/sessions/{view}/picture?step=1").content.hex())
            said.append([row["spot"] for row in caller.get(f"/sessions/{view}/history").json()["rows"]])
            said.append(caller.get("/schema").json())
            said.append(caller.get("/metadata").json())
    return without_ids(said)


def test_replies_equal_those_without_processes(server: Running):
    with running(own=fragiles()) as threads:
        assert record_conversation(server) == record_conversation(threads)


def test_replies_equal_those_without_processes_when_recording(server: Running, tmp_path: Path):
    with running(own=fragiles(), processes=True, record=tmp_path) as recorded:
        said = record_conversation(recorded)
    with running(own=fragiles(), record=tmp_path / "threads") as threads:
        assert said == record_conversation(threads)


def test_a_crash_affects_only_its_own_session(server: Running):
    with server.http("Fragile-v0") as caller, server.ws("Fragile-v0") as other:
        caller.post("/reset", json={"seed": 1})
        talk(other, "reset", {"seed": 1})
        first = caller.post("/step", json=act(STAY)).json()
        assert talk(other, "step", {"value": STAY})["data"]["observation"] == first["observation"]
        replies: list[Any] = []
        dying = threading.Thread(target=lambda: replies.append(caller.post("/step", json=act(fragile.SEGFAULT))))
        dying.start()
        second = talk(other, "step", {"value": STAY})["data"]["observation"]
        dying.join()
        refused = replies[0].json()
        assert (replies[0].status_code, refused["code"]) == (500, "EXECUTION_ERROR")
        assert "Fragile" in refused["message"]
        assert "SIGSEGV" in refused["message"]
        assert "reset" in refused["message"]
        assert refused["id"] in refused["message"]
        assert "Traceback" not in replies[0].text
        assert caller.post("/step", json=act(STAY)).json()["observation"] == second, "it goes on where it was"
        assert caller.post("/step", json=act(fragile.EXIT)).status_code == 500
        assert caller.post("/reset", json={"seed": 2}).json()["observation"]["value"][:2] == [2.0, 0.0]
        assert caller.post("/step", json=act(STAY)).status_code == 200


def test_a_crashed_session_that_cannot_be_replayed_needs_a_reset(server: Running):
    with server.ws("Unrepeatable-v0") as connection:
        talk(connection, "reset", {"seed": 1})
        assert talk(connection, "step", {"value": fragile.KILLED})["data"]["code"] == "EXECUTION_ERROR"
        refused = talk(connection, "step", {"value": STAY})["data"]
        assert refused["code"] == "STATE_ERROR"
        assert "reset" in refused["message"]
        talk(connection, "reset", {"seed": 1})
        assert talk(connection, "step", {"value": STAY})["type"] == "observation"


@pytest.mark.parametrize("how", [fragile.RAISE, fragile.ODD, fragile.UNSENDABLE])
def test_environment_errors_are_logged_but_not_sent(server: Running, how: int, caplog: pytest.LogCaptureFixture):
    with server.http("Fragile-v0") as caller:
        caller.post("/reset", json={"seed": 1})
        reply = caller.post("/step", json=act(how))
        refused = reply.json()
        assert (reply.status_code, refused["code"]) == (500, "EXECUTION_ERROR")
        assert SECRET not in reply.text
        assert "LookupError" in reply.text or how != fragile.RAISE
        [logged] = [record for record in caplog.records if getattr(record, "error_id", None) == refused["id"]]
        assert logged.exc_info is not None
        assert how == fragile.UNSENDABLE or SECRET in caplog.text
        assert "fragile.py" in caplog.text or how == fragile.UNSENDABLE
        assert caller.post("/step", json=act(STAY)).status_code == 200


def test_a_step_that_times_out_is_killed(server: Running):
    with server.http("Fragile-v0") as caller:
        id = caller.post("/reset", json={"seed": 1}).json()["session_id"]
        caller.post("/step", json=act(STAY))
        session = server.app.sessions._live[id].session  # pyright: ignore[reportPrivateUsage]
        pid = session._engine.state().pid  # pyright: ignore[reportPrivateUsage]
        reply = caller.post("/step", json=act(fragile.HANG, timeout_s=0.3))
        assert (reply.status_code, reply.json()["code"]) == (504, "TIMEOUT")
        until(lambda: have_exited({pid}))
        assert caller.post("/step", json=act(STAY)).json()["observation"]["value"][1] == 2.0


def test_an_evicted_session_has_no_process_and_can_be_resumed():
    with running(own=fragiles(), processes=True, idle_timeout=0.2) as server, server.http("Fragile-v0") as caller:
        id = caller.post("/reset", json={"seed": 1}).json()["session_id"]
        live = server.app.sessions._live  # pyright: ignore[reportPrivateUsage]
        pid = live[id].session._engine.state().pid  # pyright: ignore[reportPrivateUsage]
        until(lambda: have_exited({pid}))
        assert caller.post("/step", json=act(STAY)).json()["observation"]["value"][1] == 1.0


def test_only_blocking_environments_get_processes():
    ids = [spec.id for spec in registered() if not spec.traced]
    made = [ServedEnvironment(id, *make(id), "") for id in [*ids, "GridWorld-v0"]]
    assert not any(isinstance(each.isolate().env, IsolatedEnvironment) for each in made)
    assert isinstance(fragiles()["Fragile-v0"].isolate().env, IsolatedEnvironment)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stop_signal", "action"),
    [
        (signal.SIGTERM, STAY),
        (signal.SIGKILL, fragile.HANG),
        pytest.param(signal.SIGTERM, fragile.HANG, marks=pytest.mark.slow),  # the server waits for the step first
    ],
)
def test_no_process_outlives_the_server(stop_signal: signal.Signals, action: int):
    with process(*SERVE) as (server, url):
        at = Running(url, None, None)  # pyright: ignore[reportArgumentType]
        with at.ws() as idle, at.ws() as busy, at.http() as closed:
            talk(idle, "reset", {"seed": 1})
            before = child_processes(server.pid)
            closed.post("/reset", json={"seed": 1})
            more = child_processes(server.pid)
            closed.post("/close")
            assert len(more - before) == 1
            assert have_exited(more - before)
            talk(busy, "reset", {"seed": 1})
            busy.send(json.dumps({"type": "step", "data": {"value": action}}))
            time.sleep(0.2)
            left = child_processes(server.pid)
            assert len(left) == 3, "the nursery, and one for each session"
            server.send_signal(stop_signal)
            _, said = server.communicate(timeout=40)
        until(lambda: have_exited(left))
        assert "Traceback" not in said


@pytest.mark.slow
def test_an_environment_that_cannot_be_pickled_is_rejected_at_startup():
    command = [
        sys.executable,
        "-m",
        "tropism",
        "serve",
        "tests.isolation.fragile:Holding",
        "--processes",
        "--port",
        "0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "Holding cannot run in its own process" in done.stderr
    assert "Traceback" not in done.stderr
