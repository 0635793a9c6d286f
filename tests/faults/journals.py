"""Journals as a failure leaves them."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import copy
from typing import Any

from tests.serve.running import Running, running, talk
from websockets.exceptions import ConnectionClosed

from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.sqlite import SqliteJournal
from tropism.serve.storage.wal import FRAME, HEADER, read_commits

PAGE_SIZE = 1024  # bytes, of the journal's file


def copy_journal(path: Path, to: Path) -> Path:
    """The files of a journal in use, as a kill would leave them now."""
    for end in ("", "-wal", "-log"):
        copy(f"{path}{end}", f"{to}{end}")
    return to


def echo(connection: Any, message: str = "a", **fields: Any) -> dict[str, Any]:
    return talk(connection, "step", {"message": message}, **fields)


def resumed(connection: Any, **fields: Any) -> dict[str, Any]:
    """The reply to a step on a socket that the server closes if its session cannot be resumed."""
    with suppress(ConnectionClosed):
        connection.send(json.dumps({"type": "step", "data": {"message": "a"}, **fields}))
    return json.loads(connection.recv(30))


def killed_journal(
    folder: Path, play: Callable[[Running], Any], own: dict[str, ServedEnvironment] | None = None, **options: Any
) -> tuple[Path, Any]:
    """The journal of a server of Echo that was killed after `play`, and what that returned."""
    with running("Echo-v0", own=own, journal=SqliteJournal(folder / "running", **options)) as server:
        played = play(server)
        return copy_journal(folder / "running", folder / "killed"), played


def play_echo(steps: int, seed: int = 1) -> Callable[[Running], str]:
    """Play this many steps; returns the session id."""

    def play(server: Running) -> str:
        with server.ws() as connection:
            id = talk(connection, "reset", {"seed": seed})["data"]["session_id"]
            for number in range(steps):
                echo(connection, f"message {seed} {number}")
            return id

    return play


def flip_bit(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def last_commit_offset(wal: Path) -> int:
    """A byte of the last commit in SQLite's write-ahead log; older frames may follow it."""
    return HEADER.size + read_commits(wal)[-1] * (FRAME.size + PAGE_SIZE) - 100
