"""The OpenAPI document holds: schemathesis finds nothing, with and without a session."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.serve.running import Running, running

IDS = ("GridWorld-v0", "Echo-v0", "ConnectFour-v0")
# A document cannot say which option an environment knows, or which snapshot there is: 422 is an answer to those.
SETTINGS = ["--checks", "all", "--exclude-checks", "positive_data_acceptance", "--suppress-health-check", "all"]


def schemathesis(server: Running, id: str, folder: Path, *extra: str) -> None:
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.url}/envs/{id}/openapi.json"]
    limits = ["--max-examples", "60", "--seed", "1", "--no-color"]
    done = subprocess.run(
        [*command, *SETTINGS, *limits, *extra], capture_output=True, text=True, cwd=folder, check=False
    )
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
