"""Starts workers from a dedicated thread: they end when it ends, and it can have its own mount namespace."""

import ctypes
import os
import queue
import shutil
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from tropism.errors import SandboxError
from tropism.sandbox.worker import check_result

WORKER_UID = 61_999  # user and group of workers if the server is root; unassigned on common systems
NO_RANDOM_ADDRESSES = 0x0040000  # personality: a replayed step prints the same addresses
NEW_MOUNTS = 0x00020000  # unshare
SLAVE, RECURSIVE, BIND, READ_ONLY, REMOUNT = 1 << 19, 1 << 14, 1 << 12, 1, 1 << 5  # mount


class Launcher:
    """The kernel kills a child when the *thread* that started it ends, so this thread must outlive all workers."""

    def __init__(self, paths: Iterable[str]):
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run_jobs, args=(tuple(paths),), name="sandbox", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], Any]) -> Any:
        return self.submit(job).result()

    def submit(self, job: Callable[[], Any]) -> "Future[Any]":
        future: Future[Any] = Future()
        self._jobs.put((job, future))
        return future

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _run_jobs(self, paths: tuple[str, ...]) -> None:
        failure = None
        try:
            prepare_thread(paths)
        except OSError as error:
            failure = SandboxError("sandbox", str(error), "a place to start workers from", str(error))
        while (work := self._jobs.get()) is not None:
            _run_job(*work, failure)
            del work  # do not keep the result alive while waiting for the next job


def _run_job(job: Callable[[], Any], future: "Future[Any]", failure: SandboxError | None) -> None:
    try:
        if failure is not None:
            raise failure
        future.set_result(job())
    except BaseException as error:  # noqa: BLE001  raised in the waiting thread; this one continues
        future.set_exception(error)


def start_unprivileged(
    command: list[str],
    environment: dict[str, str] | None = None,
    stdin: int | None = None,
    output: int | None = None,
    ends_with_thread: bool = False,
) -> "subprocess.Popen[bytes]":
    """Start a command in `/` without privileges and without open files of this process.

    With `ends_with_thread`, the kernel kills it when this thread ends, if `setpriv` is installed.

    It has a session of its own, and with it a scheduling group where the kernel groups by session. Workers must be
    started in a launcher's thread.
    """
    return subprocess.Popen(
        [*unprivileged_prefix(ends_with_thread), *command],
        env=environment,
        cwd="/",
        stdin=stdin,
        stdout=output,
        stderr=output,
        pass_fds=tuple(_programs.values()),
        start_new_session=True,
    )


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process that `start_unprivileged` has started, and its children: bubblewrap killed alone, while it starts,
    leaves a child that waits for it for ever."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


_programs: dict[str, int] = {}


def open_program(name: str) -> str | None:
    """A path by which children can execute this program; None if it is not installed.

    The program is opened once and executed by its descriptor: replacing the file later has no effect.
    """
    if name not in _programs:
        path = shutil.which(name)
        if path is None:
            return None
        _programs[name] = os.open(path, os.O_PATH | os.O_CLOEXEC)
    return f"/proc/self/fd/{_programs[name]}"


def unprivileged_prefix(ends_with_thread: bool) -> list[str]:
    """A command prefix that drops root privileges, and asks for a signal when the thread that starts it ends: a worker
    asks for it too, but only once its interpreter runs."""
    setpriv = open_program("setpriv")
    death_signal = ["--pdeathsig=KILL"] if ends_with_thread else []
    if os.geteuid() != 0:
        return [setpriv, *death_signal, "--"] if setpriv is not None and death_signal else []
    if setpriv is None:
        message = "the server is root, and setpriv (of util-linux), which starts workers as another user, is missing"
        raise SandboxError("setpriv", None, "util-linux", message)
    return [
        setpriv,
        f"--reuid={WORKER_UID}",
        f"--regid={WORKER_UID}",
        "--clear-groups",
        "--inh-caps=-all",
        "--no-new-privs",
        *death_signal,
        "--",
    ]


def prepare_thread(paths: Iterable[str]) -> None:
    """Prepare this thread for starting workers; other threads are not affected."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.personality(NO_RANDOM_ADDRESSES)
    root_only = _root_only_folders(paths) if os.geteuid() == 0 else {}
    if not root_only:
        return
    check_result(libc.unshare(NEW_MOUNTS), "a private file system for the sandbox")
    check_result(libc.mount(None, b"/", None, SLAVE | RECURSIVE, None), "a private file system for the sandbox")
    for folder, inner in root_only.items():
        _hide_folder(libc, folder, inner)


def _root_only_folders(paths: Iterable[str]) -> dict[str, list[str]]:
    """Folders that only root can enter, each with the paths inside that workers need."""
    found: dict[str, list[str]] = {}
    for path in paths:
        parts = path.strip("/").split("/")[:-1]
        parents = ("/" + "/".join(parts[: end + 1]) for end in range(len(parts)))
        root_only_folder = next((folder for folder in parents if not os.stat(folder).st_mode & stat.S_IXOTH), None)
        if root_only_folder is not None:
            found.setdefault(root_only_folder, []).append(path)
    return found


def _hide_folder(libc: Any, folder: str, inner: list[str]) -> None:
    """Mount an empty file system over the folder and bind the inner paths into it, read-only."""
    fds = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in sorted(inner)}
    check_result(libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"mode=755,size=1m"), folder)
    for path, fd in fds.items():
        if os.path.exists(path):  # inside a path that is already bound
            continue
        place = path if stat.S_ISDIR(os.fstat(fd).st_mode) else os.path.dirname(path)
        os.makedirs(place, exist_ok=True)
        _make_traversable(folder, place)
        if place != path:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        check_result(libc.mount(f"/proc/self/fd/{fd}".encode(), path.encode(), None, BIND, None), path)
        check_result(libc.mount(None, path.encode(), None, BIND | REMOUNT | READ_ONLY, None), path)
    for fd in fds.values():
        os.close(fd)


def _make_traversable(folder: str, place: str) -> None:
    """Let every user pass from `folder` to `place`, independent of the server's umask."""
    while place != folder:
        os.chmod(place, 0o755)
        place = os.path.dirname(place)
