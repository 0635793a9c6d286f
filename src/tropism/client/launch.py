"""Servers started by a client."""

import atexit
import os
import re
import secrets
import shlex
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

START_TIMEOUT = 60.0  # seconds
STOP_TIMEOUT = 10.0  # seconds
ENGINES = ("docker", "podman")
MAX_OUTPUT = 2**16  # bytes of server output that are read at startup


@dataclass
class ServerProcess:
    """A running server and a function that stops it."""

    url: str
    stop: Callable[[], None]
    token: str | None = None


def local_server(id: str) -> ServerProcess:
    """`tropism serve` of one environment, on a free port."""
    command = [sys.executable, "-m", "tropism", "serve", id, "--port", "0"]
    output = tempfile.TemporaryFile("w+")  # noqa: SIM115  a full pipe would block the server
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True)

    def stop() -> None:
        atexit.unregister(stop)
        process.terminate()
        try:
            process.wait(timeout=STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        output.close()

    deadline = time.monotonic() + START_TIMEOUT
    while True:
        text = _read(output)
        address = re.search(r" at (http://\S+)", text)
        if address is not None:
            atexit.register(stop)  # stop the server when this program exits
            return ServerProcess(f"{address[1]}/envs/{id.rpartition(':')[2]}", stop)
        if process.poll() is not None or time.monotonic() > deadline:
            stop()
            raise ServerError("FACTORY_ERROR", f"the server of {id!r} did not start: {text.strip()}")
        time.sleep(0.02)


def container_server(image: str, id: str | None = None, engine: str | None = None) -> ServerProcess:
    """A container of this image, which serves the environment `id`, with port 8000 published on loopback.

    `id` is None for the image's own choice. `engine` is the command, with options if needed, such as
    "podman --runtime runc"; by default docker or podman.
    """
    command = shlex.split(engine or next(filter(shutil.which, ENGINES), ENGINES[0]))
    if shutil.which(command[0]) is None:
        message = f"a container needs the command {' or '.join([command[0]] if engine else ENGINES)}"
        raise MissingExtraError("engine", engine, "a container engine that is installed", message)
    token = secrets.token_urlsafe(16)
    published = ("--publish", "127.0.0.1::8000", "--env", "TROPISM_TOKEN")  # the value is not on the command line
    chosen = () if id is None else (id,)
    container = _run_engine(command, "run", "--detach", "--rm", *published, image, *chosen, TROPISM_TOKEN=token)

    def stop() -> None:
        _run_engine(command, "stop", "--time", str(int(STOP_TIMEOUT)), container)

    try:
        address = _run_engine(command, "port", container, "8000/tcp").splitlines()[0]
        _wait(f"http://{address}/health")
    except ServerError:
        stop()
        raise
    return ServerProcess(f"http://{address}" + ("" if id is None else f"/envs/{id}"), stop, token)


def _read(file: TextIO) -> str:
    """The output so far, without moving the offset that the server writes at."""
    return os.pread(file.fileno(), MAX_OUTPUT, 0).decode(errors="replace")


def _run_engine(command: list[str], *arguments: str, **variables: str) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise ServerError("FACTORY_ERROR", f"{command[0]} {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def _wait(url: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise ServerError("UNREACHABLE", f"no reply from {url} within {START_TIMEOUT:.0f} s")
