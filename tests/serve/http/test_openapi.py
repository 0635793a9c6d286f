"""Schemathesis finds no deviation from the OpenAPI document, with and without a session."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.serve.running import Running, running

IDS = ("GridWorld-v0", "Echo-v0", "ConnectFour-v0")
SETTINGS = ["--checks", "all", "--suppress-health-check", "all", "--max-examples", "30", "--seed", "1", "--no-color"]
# A step may be given too little time (504). A document cannot say which options an environment knows, which snapshots
# and steps there are, nor that 3.0 is no whole number: there, 422 is an answer to what it calls valid.
CONFIG = """
[checks]
not_a_server_error.expected-statuses = ["2XX", "4XX", "504"]

[[operations]]
include-path-regex = "^/(reset|step|restore|fork)$|^/(sessions|recordings)/"
checks.positive_data_acceptance.expected-statuses = ["2XX", "404", "409", "422", "504"]
"""


def schemathesis(server: Running, id: str, folder: Path, *extra: str) -> None:
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.url}/envs/{id}/openapi.json"]
    (folder / "schemathesis.toml").write_text(CONFIG)
    done = subprocess.run([*command, *SETTINGS, *extra], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("id", IDS)
def test_schemathesis_finds_nothing(id: str, tmp_path: Path):
    with running(id) as server:
        schemathesis(server, id, tmp_path)
        with server.http(id) as caller:
            session = caller.post("/reset", json={"seed": 1}).headers["x-session-id"]
        schemathesis(server, id, tmp_path, "--header", f"X-Session-Id: {session}", "--exclude-path", "/close")
        with server.http(id, headers={"X-Session-Id": session}) as caller:
            assert caller.post("/reset", json={}).status_code == 200
