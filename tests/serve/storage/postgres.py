"""A real Postgres server for tests, from the machine's own programs."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from tempfile import mkdtemp

import psycopg
import pytest

USERS = ("postgres", "nobody")  # Postgres does not run as root


def programs() -> Path | None:
    """The folder of Postgres's programs."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class PostgresServer:
    """A server in a folder of its own; `url` is the address of its database."""

    def __init__(self, folder: Path, programs: Path):
        self._programs = programs
        self._data = folder / "data"
        self._folder = folder
        self._user = None if os.geteuid() else next(name for name in USERS if _exists(name))
        if self._user is not None:
            shutil.chown(folder, self._user)
        with socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://tropism@127.0.0.1:{self.port}/postgres"
        self._run("initdb", "-D", str(self._data), "-U", "tropism", "-A", "trust", "--no-sync", "-E", "UTF8")

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._folder}"
        log = str(self._folder / "log")
        self._run("pg_ctl", "start", "-w", "-D", str(self._data), "-l", log, "-o", options)

    def stop(self, mode: str = "immediate") -> None:
        """`immediate` ends it as a crash does."""
        self._run("pg_ctl", "stop", "-w", "-m", mode, "-D", str(self._data))

    def clear(self) -> None:
        """Delete all journals."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("drop schema if exists tropism cascade")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(
            command, user=self._user, cwd=self._folder, env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL, capture_output=program == "initdb", timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


@contextmanager
def postgres_server() -> Generator[PostgresServer]:
    """A running server; skips the test if Postgres is not installed."""
    found = programs()
    if found is None:
        pytest.skip("Postgres is not installed (Debian: postgresql)")
    folder = Path(mkdtemp(prefix="tropism-postgres-"))
    try:
        server = PostgresServer(folder, found)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
