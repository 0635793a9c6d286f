"""Servers that a client starts for itself."""

import re
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

from tropism.errors import MissingExtraError, ServerError

STARTING = 60.0  # seconds
STOPPING = 10.0


@dataclass
class Process:
    """A server and how to stop it."""

    url: str
    stop: Callable[[], None]
    token: str | None = None


def local_server(id: str) -> Process:
    """`tropism serve` of one environment, on a free port."""
    command = [sys.executable, "-m", "tropism", "serve", id, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def stop() -> None:
        process.terminate()
        try:
            process.communicate(timeout=STOPPING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    assert process.stdout is not None
    line = process.stdout.readline()
    address = re.search(r"at (http://\S+)", line)
    if address is None:
        _, said = process.communicate()
        raise ServerError("FACTORY_ERROR", f"the server of {id!r} did not start: {(line + said).strip()}")
    return Process(f"{address[1]}/envs/{id}", stop)


def docker_server(image: str) -> Process:
    """A container of this image, whose port 8000 is reached on this machine only."""
    if shutil.which("docker") is None:
        raise MissingExtraError("docker", None, "the docker command", "Client.from_docker needs the docker command")
    token = secrets.token_urlsafe(16)
    published = ("--publish", "127.0.0.1::8000", "--env", f"TROPISM_TOKEN={token}")
    container = _docker("run", "--detach", "--rm", *published, image)

    def stop() -> None:
        _docker("stop", "--time", str(int(STOPPING)), container)

    try:
        address = _docker("port", container, "8000/tcp").splitlines()[0]
        _wait(f"http://{address}/health")
    except ServerError:
        stop()
        raise
    return Process(f"http://{address}", stop, token)


def _docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerError("FACTORY_ERROR", f"docker {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def _wait(url: str) -> None:
    deadline = time.monotonic() + STARTING
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise ServerError("UNREACHABLE", f"nothing answered at {url} in {STARTING:.0f} s")
