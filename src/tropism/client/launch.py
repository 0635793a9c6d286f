"""Servers that a client starts for itself."""

import atexit
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from tropism.errors import MissingExtraError, ServerError

STARTING = 60.0  # seconds
STOPPING = 10.0
LONGEST_WORDS = 2**16  # bytes of what a server says when it starts


@dataclass
class Process:
    """A server and how to stop it."""

    url: str
    stop: Callable[[], None]
    token: str | None = None


def local_server(id: str) -> Process:
    """`tropism serve` of one environment, on a free port."""
    command = [sys.executable, "-m", "tropism", "serve", id, "--port", "0"]
    said = tempfile.TemporaryFile("w+")  # noqa: SIM115  a pipe that nobody reads would stop the server when it is full
    process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, text=True)

    def stop() -> None:
        atexit.unregister(stop)
        process.terminate()
        try:
            process.wait(timeout=STOPPING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        said.close()

    deadline = time.monotonic() + STARTING
    while True:
        words = _read(said)
        address = re.search(r" at (http://\S+)", words)
        if address is not None:
            atexit.register(stop)  # a server does not outlive the program that started it
            return Process(f"{address[1]}/envs/{id.rpartition(':')[2]}", stop)
        if process.poll() is not None or time.monotonic() > deadline:
            stop()
            raise ServerError("FACTORY_ERROR", f"the server of {id!r} did not start: {words.strip()}")
        time.sleep(0.02)


def docker_server(image: str) -> Process:
    """A container of this image, whose port 8000 is reached on this machine only."""
    if shutil.which("docker") is None:
        raise MissingExtraError("docker", None, "the docker command", "Client.from_docker needs the docker command")
    token = secrets.token_urlsafe(16)
    published = ("--publish", "127.0.0.1::8000", "--env", "TROPISM_TOKEN")  # its value is nobody else's to read
    container = _docker("run", "--detach", "--rm", *published, image, TROPISM_TOKEN=token)

    def stop() -> None:
        _docker("stop", "--time", str(int(STOPPING)), container)

    try:
        address = _docker("port", container, "8000/tcp").splitlines()[0]
        _wait(f"http://{address}/health")
    except ServerError:
        stop()
        raise
    return Process(f"http://{address}", stop, token)


def _read(file: TextIO) -> str:
    """All that was written so far; the writer has a place of its own in the file."""
    return os.pread(file.fileno(), LONGEST_WORDS, 0).decode(errors="replace")


def _docker(*arguments: str, **variables: str) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, env=environment)
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
