"""Without namespaces and Landlock, Coding-v0 is unavailable, and every interface reports why."""

import json
import subprocess
import sys

import pytest

# A user namespace in which no other can be created and root cannot become another user, as in some containers.
NO_NAMESPACES = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
NO_LANDLOCK = "from tropism.sandbox import landlock; landlock.version = lambda: 0"
REASONS = ("no sandbox is available", "tier A: ", "tier B: ")


def without_sandboxes(program: str) -> "subprocess.CompletedProcess[str]":
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", NO_NAMESPACES, "sh"]
    words = [*command, sys.executable, "-c", f"{NO_LANDLOCK}\n{program}"]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module", autouse=True)
def can_simulate() -> None:
    done = without_sandboxes("print('here')")
    if done.stdout != "here\n":
        pytest.skip(f"no such namespace can be created here: {done.stderr}")


def test_make_and_registered_report_the_reason():
    done = without_sandboxes("""
from tropism import make, registered, UnknownEnvironmentError
print("Coding-v0" in [spec.id for spec in registered()], make("Echo-v0")[0] is not None)
try:
    make("Coding-v0")
except UnknownEnvironmentError as error:
    print(error)
""")
    present, reason = done.stdout.strip().split("\n", 1)
    assert present == "False True", done.stderr
    assert all(words in reason for words in REASONS), reason


def test_the_constructor_raises():
    done = without_sandboxes("from tropism.envs.coding.coding import Coding; Coding(tier='B')")
    assert "SandboxError: no sandbox is available (tier B: " in done.stderr


@pytest.mark.slow
def test_the_command_line_reports_the_reason():
    run = "import sys; from tropism.cli import main; sys.argv[1:] = {!r}; main()"
    listed = without_sandboxes(run.format(["list", "--json"]))
    [row] = [row for row in json.loads(listed.stdout) if row["id"] == "Coding-v0"]
    assert all(words in row["absent"] for words in REASONS)
    doctor = without_sandboxes(run.format(["sandbox", "doctor"]))
    assert doctor.returncode == 1
    assert "Coding-v0 is unavailable" in doctor.stdout
    served = without_sandboxes(run.format(["serve", "Coding-v0", "--port", "0"]))
    assert (served.returncode, "no environment 'Coding-v0' here" in served.stderr) == (2, True)


@pytest.mark.slow
def test_the_health_endpoint_reports_the_reason():
    done = without_sandboxes("""
import asyncio, json
from tropism.serve.app import App
from tropism.serve.server import load_environments, unavailable_environments

async def health():
    app, sent = App(load_environments(["Echo-v0"]), absent=unavailable_environments()), []
    async def send(message): sent.append(message)
    async def receive(): return {"type": "http.request", "body": b""}
    scope = {"type": "http", "method": "GET", "path": "/health", "query_string": b""}
    scope["headers"] = [(b"host", b"localhost")]
    await app(scope, receive, send)
    print(sent[-1]["body"].decode())
asyncio.run(health())
""")
    assert done.stdout, done.stderr
    health = json.loads(done.stdout)
    assert health["status"] == "healthy"
    assert all(words in health["absent"]["Coding-v0"] for words in REASONS)


def test_other_environments_do_not_run_the_attacks():
    program = "import tropism; tropism.make('CartPole-v1'); from tropism.sandbox import doctor; "
    program += "print(doctor.cached_report.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "0\n", done.stderr
