"""A real server on a free port, in a thread of the test."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from tests.serve.lab import Lab, Stuck, Unwritable
from websockets.sync.client import ClientConnection, connect

from tropism.serve.app import App
from tropism.serve.recordings.writer import RecordingWriter
from tropism.serve.server import Server, load_environments
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.settings import Settings
from tropism.serve.storage.protocol import Journal
from tropism.serve.storage.sqlite import LOG_SIZE, SqliteJournal

STARTING = 60.0  # seconds


class Running:
    """A running server: its URL and its application."""

    def __init__(self, url: str, app: App, loop: asyncio.AbstractEventLoop):
        self.url = url
        self.app = app
        self.loop = loop
        self.host, _, port = url.removeprefix("http://").rpartition(":")
        self.port = int(port)

    def http(self, id: str = "", **settings: Any) -> httpx.Client:
        """An HTTP client with its own cookies."""
        base = f"{self.url}/envs/{id}" if id else self.url
        return httpx.Client(base_url=base, timeout=30, trust_env=False, **settings)

    def ws(self, id: str = "", query: str = "", **settings: Any) -> ClientConnection:
        base = f"ws://{self.host}:{self.port}" + (f"/envs/{id}" if id else "")
        return connect(f"{base}/ws{query}", proxy=None, compression=None, **settings)

    def raw(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=20)


def labs() -> dict[str, ServedEnvironment]:
    environments = (("Lab-v0", Lab()), ("Unwritable-v0", Unwritable()), ("Stuck-v0", Stuck()))
    return {id: ServedEnvironment(id, env, env.default_params(), "A test's own.") for id, env in environments}


@contextmanager
def running(
    *ids: str,
    own: Mapping[str, ServedEnvironment] | None = None,
    record: Path | None = None,
    journal: Journal | None = None,
    port: int = 0,
    log_size: int = LOG_SIZE,
    **settings: Any,
) -> Generator[Running]:
    """Run a server with these registered environments and those of `own`, with a journal."""
    environments = (load_environments(ids) if ids else {}) | dict(own or {})
    recordings = None if record is None else RecordingWriter(record, environments.values())
    with TemporaryDirectory() as folder:
        limits = Settings(port=port, **settings)
        max_entries = limits.session_limits.max_entries
        journal = journal or SqliteJournal(Path(folder) / "journal", log_size=log_size, max_entries=max_entries)
        app = App(environments, limits, journal, recordings=recordings)
        with _serving(app) as there:
            yield there


@contextmanager
def _serving(app: App) -> Generator[Running]:
    heard: list[Running] = []
    started = threading.Event()

    def ready(url: str) -> None:
        heard.append(Running(url, app, asyncio.get_running_loop()))
        started.set()

    server = Server(app, ready)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert started.wait(STARTING)
        yield heard[0]
    finally:
        server.should_exit = True
        thread.join(STARTING)


class Servers:
    """A sequence of servers, each with the journal as a kill of the previous one would have left it."""

    def __init__(self, folder: Path, started: ExitStack, *ids: str, log_size: int, **settings: Any):
        self._folder = folder
        self._numbers = count()
        self._started = started
        self._ids, self._settings = ids, settings
        self._log_size = log_size
        self._start(self._next())

    def _next(self) -> Path:
        return self._folder / str(next(self._numbers))

    def _start(self, path: Path) -> None:
        self.journal = SqliteJournal(path, log_size=self._log_size)
        self.now = self._started.enter_context(running(*self._ids, journal=self.journal, **self._settings))

    def crash(self) -> None:
        """Start another server on a copy of the journal; the old one is no longer used."""
        left = self._next()
        self.run(self._copy, left)
        self._start(left)

    async def _copy(self, to: Path) -> None:
        """Runs between event-loop iterations, so that the copy equals what a kill would leave."""
        for end in ("", "-wal", "-log"):
            copy(f"{self.journal.path}{end}", f"{to}{end}")

    def run(self, function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
        """Run a coroutine on the server's event loop."""
        return asyncio.run_coroutine_threadsafe(function(*arguments), self.now.loop).result(30)


def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until a condition becomes true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.01)


def talk(connection: ClientConnection, kind: str, data: Any = None, **fields: Any) -> dict[str, Any]:
    """Send one frame; returns the reply."""
    frame = {"type": kind} | ({} if data is None else {"data": data}) | fields
    connection.send(json.dumps(frame))
    return json.loads(connection.recv(30))


@contextmanager
def process(*command: str, first_path: Path | None = None) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A server process; modules in the folder `first_path` hide others of the same name."""
    paths = [*([] if first_path is None else [str(first_path)]), *(path for path in sys.path if path)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    started = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    )
    try:
        assert started.stdout is not None
        address = re.search(r"at (http://\S+)", started.stdout.readline())
        assert address is not None, started.communicate()[1]
        yield started, address[1]
    finally:
        started.kill()
        started.communicate()
