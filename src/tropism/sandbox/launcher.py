"""Starts workers from a thread of its own: they end when it ends, and it can have a file system of its own."""

import ctypes
import os
import queue
import shutil
import socket
import stat
import subprocess
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from tropism.errors import SandboxError

USER = 61_999  # who workers are where the server is root; nobody else, in the range kept for such use
NO_RANDOM_ADDRESSES = 0x0040000  # personality: so that a replayed step prints the addresses it printed before
NEW_MOUNTS = 0x00020000  # unshare
SLAVE, RECURSIVE, BIND, READ_ONLY, REMOUNT = 1 << 19, 1 << 14, 1 << 12, 1, 1 << 5  # mount


class Launcher:
    """A kernel ends a child when the *thread* that started it ends, so that thread must outlive them all."""

    def __init__(self, paths: Iterable[str]):
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, args=(tuple(paths),), name="sandbox", daemon=True)
        self._thread.start()

    def perform(self, job: Callable[[], Any]) -> Any:
        return self.submit(job).result()

    def submit(self, job: Callable[[], Any]) -> "Future[Any]":
        future: Future[Any] = Future()
        self._jobs.put((job, future))
        return future

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _work(self, paths: tuple[str, ...]) -> None:
        failure = None
        try:
            prepare(paths)
        except OSError as error:
            failure = SandboxError("sandbox", str(error), "a place to start workers from", str(error))
        while (work := self._jobs.get()) is not None:
            _do(*work, failure)
            del work  # whoever waits for the result holds it


def _do(job: Callable[[], Any], future: "Future[Any]", failure: SandboxError | None) -> None:
    try:
        if failure is not None:
            raise failure
        future.set_result(job())
    except BaseException as error:  # noqa: BLE001  whoever waits is told; the thread goes on
        future.set_exception(error)


def start(command: list[str], environment: dict[str, str], channel: socket.socket) -> "subprocess.Popen[bytes]":
    """Run a command without privileges, with no file open but these; to be called in a launcher's thread."""
    words = [*without_root(), *command]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, env=environment, cwd="/", stdin=channel.fileno(), stdout=pipe, stderr=pipe)


def without_root() -> list[str]:
    """What to put before a command, so that it does not run as root."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        words = "the server is root, and setpriv (of util-linux) is missing, which starts workers as somebody else"
        raise SandboxError("setpriv", None, "util-linux", words)
    return [setpriv, f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all", "--no-new-privs", "--"]


def prepare(paths: Iterable[str]) -> None:
    """Make this thread one that can start workers: the rest of the process is as it was."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.personality(NO_RANDOM_ADDRESSES)
    hidden = _hidden(paths) if os.geteuid() == 0 else {}
    if not hidden:
        return
    _call(libc.unshare(NEW_MOUNTS), "a private file system for the sandbox")
    _call(libc.mount(None, b"/", None, SLAVE | RECURSIVE, None), "a private file system for the sandbox")
    for folder, inner in hidden.items():
        _cover(libc, folder, inner)


def _hidden(paths: Iterable[str]) -> dict[str, list[str]]:
    """Folders that only root can enter, with the paths within that workers need."""
    found: dict[str, list[str]] = {}
    for path in paths:
        parts = path.strip("/").split("/")[:-1]
        above = ("/" + "/".join(parts[: end + 1]) for end in range(len(parts)))
        closed = next((folder for folder in above if not os.stat(folder).st_mode & stat.S_IXOTH), None)
        if closed is not None:
            found.setdefault(closed, []).append(path)
    return found


def _cover(libc: Any, folder: str, inner: list[str]) -> None:
    """Lay an empty file system over the folder, in which only the inner paths show, where they were."""
    fds = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in sorted(inner)}
    _call(libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"mode=755,size=1m"), folder)
    for path, fd in fds.items():
        if os.path.exists(path):  # within another one
            continue
        place = path if stat.S_ISDIR(os.fstat(fd).st_mode) else os.path.dirname(path)
        os.makedirs(place, exist_ok=True)
        _open_up(folder, place)
        if place != path:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        _call(libc.mount(f"/proc/self/fd/{fd}".encode(), path.encode(), None, BIND, None), path)
        _call(libc.mount(None, path.encode(), None, BIND | REMOUNT | READ_ONLY, None), path)
    for fd in fds.values():
        os.close(fd)


def _open_up(folder: str, place: str) -> None:
    """Whatever the server's umask, everybody may pass from the folder to the place."""
    while place != folder:
        os.chmod(place, 0o755)
        place = os.path.dirname(place)


def _call(result: int, what: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
