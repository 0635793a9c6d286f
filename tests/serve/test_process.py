"""A server in its own process: start-up, log and shutdown."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serve.lab import RAISE, SECRET, SLEEP, STAY
from tests.serve.requests import call_tool
from tests.serve.running import process
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

LABS = """
import sys
from tests.serve.running import labs
from tropism.serve.app import App
from tropism.serve.server import log_to_stderr, run
from tropism.serve.settings import Settings
log_to_stderr("warning")
run(App(labs(), Settings(port=0)), lambda url: print(f"at {url}", flush=True))
"""


def act(action: int) -> dict[str, Any]:
    return {"action": {"value": action}}


@pytest.mark.slow
def test_running_steps_are_answered_at_shutdown():
    with process("-c", LABS) as (server, url), httpx.Client(base_url=url, trust_env=False) as caller:
        caller.post("/reset", json={"seed": 1})
        replies: list[Any] = []
        step = threading.Thread(target=lambda: replies.append(caller.post("/step", json=act(SLEEP))))
        with connect(url.replace("http", "ws") + "/ws", proxy=None) as connection:
            connection.send('{"type": "reset", "data": {"seed": 2}}')
            connection.recv(10)
            step.start()
            connection.send(json.dumps({"type": "step", "data": {"value": SLEEP}}))
            time.sleep(0.1)
            server.send_signal(signal.SIGTERM)
            frame = json.loads(connection.recv(10))
            with pytest.raises(ConnectionClosed) as closed:
                connection.recv(10)
        step.join()
        assert replies[0].json()["observation"]["value"] == [1.0, 1.0]
        assert frame["data"]["observation"]["value"] == [2.0, 1.0]
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012  # the server restarts
        _, stderr = server.communicate(timeout=20)
        assert stderr == ""
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health", trust_env=False)


@pytest.mark.slow
@pytest.mark.parametrize("stop_signal", [signal.SIGTERM, signal.SIGINT])
def test_a_step_that_never_ends_does_not_prevent_shutdown(stop_signal: signal.Signals):
    with process("-c", LABS) as (server, url), httpx.Client(base_url=url, trust_env=False, timeout=60) as caller:
        caller.post("/envs/Stuck-v0/reset", json={"seed": 1})
        replies: list[Any] = []
        step = threading.Thread(target=lambda: replies.append(caller.post("/envs/Stuck-v0/step", json=act(STAY))))
        step.start()
        with connect(url.replace("http", "ws") + "/envs/Stuck-v0/ws", proxy=None) as connection:
            connection.send('{"type": "reset", "data": {"seed": 2}}')
            connection.recv(10)
            connection.send(json.dumps({"type": "step", "data": {"value": STAY}}))
            time.sleep(0.2)
            server.send_signal(stop_signal)
            with pytest.raises(ConnectionClosed):
                connection.recv(30)
        step.join()
        assert (replies[0].status_code, replies[0].json()["code"]) == (503, "STOPPING")
        _, stderr = server.communicate(timeout=30)
        assert "CancelledError" not in stderr


@pytest.mark.slow
def test_the_log_has_the_error_id_of_the_reply():
    with process("-c", LABS) as (server, url), httpx.Client(base_url=url, trust_env=False) as caller:
        caller.post("/reset", json={"seed": 1})
        body = caller.post("/step", json=act(RAISE)).json()
        assert caller.post("/step", json=act(STAY)).status_code == 200
        with connect(f"ws{url[4:]}/ws?session_id=x", proxy=None) as connection:
            assert "SESSION_ERROR" in str(connection.recv(10))
        assert httpx.get(url, headers={"Host": "evil"}, trust_env=False).status_code == 403
        server.send_signal(signal.SIGTERM)
        _, stderr = server.communicate(timeout=20)
    [line] = [json.loads(text) for text in stderr.splitlines()]
    assert line["error_id"] == body["id"]
    assert line["level"] == "error"
    assert SECRET in line["traceback"]


def test_the_command_serves_until_interrupted():
    with process("-m", "tropism", "serve", "GridWorld-v0", "--port", "0") as (server, url):
        assert httpx.get(f"{url}/health", trust_env=False).json()["status"] == "healthy"
        assert [row["name"] for row in httpx.get(f"{url}/list_environments", trust_env=False).json()] == [
            "GridWorld-v0"
        ]
        server.send_signal(signal.SIGINT)
        _, stderr = server.communicate(timeout=20)
        assert "Traceback" not in stderr


@pytest.mark.slow
def test_a_public_address_needs_a_token():
    command = [sys.executable, "-m", "tropism", "serve", "GridWorld-v0", "--host", "0.0.0.0"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environ.pop("TROPISM_TOKEN", None)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, timeout=60)
    assert done.returncode == 2
    assert "token" in done.stderr
    assert "Traceback" not in done.stderr


OPTIONAL = ("mcp", "openenv", "psycopg", "gymnasium", "pyarrow", "llvmlite", "optax", "PIL", "matplotlib")


@pytest.mark.slow
@pytest.mark.parametrize("content", ["raise ImportError('missing')", "__version__ = '0.0.1'"], ids=["missing", "old"])
def test_a_missing_or_old_optional_package_does_not_stop_the_server(tmp_path: Path, content: str):
    for name in OPTIONAL:
        (tmp_path / f"{name}.py").write_text(content)
    command = ("-m", "tropism", "serve", "Echo-v0", "CartPole-v1", "--port", "0", "--durability", "off")
    with process(*command, first_path=tmp_path) as (_, url), httpx.Client(base_url=url, trust_env=False) as caller:
        for id, action in (("Echo-v0", {"message": "a"}), ("CartPole-v1", {"value": 1})):
            caller.post(f"/envs/{id}/reset", json={}, timeout=60)
            reply = caller.post(f"/envs/{id}/step", json={"action": action}, timeout=60)
            assert reply.json()["step_count"] == 1
        assert len(call_tool(caller, "list_environments")["environments"]) == 2
        assert caller.get("/").status_code == 200
