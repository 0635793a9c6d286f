"""The fork server: a process without threads that has imported what the workers need, and forks them."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from typing import NamedTuple

import jax

from tropism.errors import ProcessError
from tropism.isolation.worker import COMMAND, END, IMPORT, KILL, START

SHUTDOWN_TIMEOUT = 5.0  # seconds
UNKNOWN_EXIT = 256  # in place of an exit code
BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from tropism.isolation.worker import main
main(int(sys.argv[1]))
"""


class ProcessExit(NamedTuple):
    """How a process ended: its exit code, or minus the signal, and its traceback if it could write one."""

    code: int
    trace: str

    @property
    def description(self) -> str:
        if self.code == UNKNOWN_EXIT:
            return "ended for an unknown reason"
        return f"was killed by {_signal_name(-self.code)}" if self.code < 0 else f"exited with code {self.code}"


class ForkServer:
    """Forks workers in place of this process, whose JAX threads would be missing in a fork."""

    def __init__(self) -> None:
        self.imported: set[str] = set()
        self.abandoned: deque[int] = deque()  # workers without a handle; the next start ends them
        self._lock = threading.Lock()
        self._control, remote = socket.socketpair()
        with remote:
            self._process = subprocess.Popen(
                [sys.executable, "-c", BOOT, str(remote.fileno()), json.dumps(sys.path)],
                stdin=subprocess.DEVNULL,
                pass_fds=[remote.fileno()],
                start_new_session=True,  # Ctrl-C goes to the server only, which lets running steps finish
                env=_environment(),
            )
        atexit.register(self.close)

    @property
    def alive(self) -> bool:
        return self._control.fileno() >= 0 and self._process.poll() is None

    def prepare(self, modules: set[str]) -> bool:
        """Import modules; False if an import started threads: this server must not be forked any more."""
        self.imported |= modules
        try:
            return bool(self._send(IMPORT, 0, json.dumps(sorted(modules)).encode()).code)
        except OSError:
            return False

    def start(self, channel: int) -> int:
        """Start a worker that serves this end of a channel; its process id."""
        try:
            while self.abandoned:
                self._send(END, self.abandoned.popleft())
            pid, reason = self._send(START, 0, b"", channel)
        except OSError as error:
            pid, reason = 0, str(error)
        if pid <= 0:
            raise ProcessError("process", reason, "a process that starts", f"no process can be started: {reason}")
        return pid

    def kill(self, pid: int) -> None:
        """Kill a worker; another thread waits for its exit."""
        try:
            self._send(KILL, pid)
        except OSError:
            return  # the fork server has ended; the worker ends when it reads its next request

    def end(self, pid: int) -> ProcessExit:
        """Kill a worker unless it has ended already, and reap it."""
        try:
            return self._send(END, pid)
        except OSError:
            return ProcessExit(UNKNOWN_EXIT, "")

    def close(self) -> None:
        """End the fork server and its workers."""
        self._control.close()
        try:
            self._process.wait(SHUTDOWN_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, command: int, pid: int, data: bytes = b"", *channel: int) -> ProcessExit:
        with self._lock:
            try:
                socket.send_fds(self._control, [COMMAND.pack(command, pid or len(data))], channel)
                self._control.sendall(data)
                code, length = COMMAND.unpack(self._receive(COMMAND.size))
                return ProcessExit(code, self._receive(length).decode(errors="replace"))
            except BaseException:
                self._control.close()  # a late reply would be taken for that to the next command
                raise

    def _receive(self, size: int) -> bytes:
        data = self._control.recv(size, socket.MSG_WAITALL) if size else b""
        if len(data) < size:
            raise ConnectionError("the fork server has ended")
        return data


_servers: dict[int, ForkServer] = {}  # by process id: a fork of this process needs its own
_threaded: set[str] = set()  # modules that start threads: each worker imports them itself, which takes longer
_servers_lock = threading.Lock()


def fork_server_with(modules: tuple[str, ...]) -> ForkServer:
    """The fork server of this process, with these modules imported; started if none is running."""
    with _servers_lock:
        server = _servers.get(os.getpid())
        if server is None or not server.alive:
            server = ForkServer()
        missing = {*modules} - server.imported - _threaded
        if missing and not server.prepare(missing):
            _threaded.update(missing)
            server = ForkServer()
        _servers[os.getpid()] = server
        return server


def _environment() -> dict[str, str]:
    """JAX has the same precision as here, but runs on the CPU: each process would claim an accelerator."""
    x64 = "1" if jax.config.read("jax_enable_x64") else "0"
    return {"JAX_PLATFORMS": "cpu", **os.environ, "JAX_ENABLE_X64": x64}


def _signal_name(number: int) -> str:
    names = {member.value: member.name for member in signal.Signals}
    return names.get(number, f"signal {number}")
