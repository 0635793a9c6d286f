"""The process that children are forked from: it has imported what they need, and runs no thread."""

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
from tropism.isolation.worker import END, IMPORT, KILL, ORDER, START

LEAVING = 5.0  # seconds that a nursery has to end
NOBODY_KNOWS = 256  # in place of an exit code
BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from tropism.isolation.worker import main
main(int(sys.argv[1]))
"""


class Ending(NamedTuple):
    """How a process ended: its exit code, or minus the signal; and where it was, if it could still say."""

    code: int
    trace: str

    @property
    def words(self) -> str:
        if self.code == NOBODY_KNOWS:
            return "ended, nobody knows how,"
        return f"was ended by {_signal(-self.code)}" if self.code < 0 else f"exited with code {self.code}"


class Nursery:
    """Forks in place of this process, in which JAX runs threads: those would be missing in a fork of it."""

    def __init__(self) -> None:
        self.imported: set[str] = set()
        self.dropped: deque[int] = deque()  # children that nobody has any more; the next order ends them
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", BOOT, str(theirs.fileno()), json.dumps(sys.path)],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the server, which lets steps under way finish
                env=_environment(),
            )
        atexit.register(self.close)

    @property
    def alive(self) -> bool:
        return self._control.fileno() >= 0 and self._process.poll() is None

    def prepare(self, modules: set[str]) -> bool:
        """Import them; False where that has started threads, so that it must not be forked."""
        self.imported |= modules
        try:
            return bool(self._order(IMPORT, 0, json.dumps(sorted(modules)).encode()).code)
        except OSError:
            return False

    def start(self, channel: int) -> int:
        """The number of a process that answers at this end of a channel."""
        try:
            while self.dropped:
                self._order(END, self.dropped.popleft())
            pid, why = self._order(START, 0, b"", channel)
        except OSError as error:
            pid, why = 0, str(error)
        if pid <= 0:
            raise ProcessError("process", why, "one that starts", f"no process can be started: {why}")
        return pid

    def kill(self, pid: int) -> None:
        """End a child whose end somebody else waits for."""
        try:
            self._order(KILL, pid)
        except OSError:
            return  # nobody is left who could; it ends by itself when it looks for the next question

    def end(self, pid: int) -> Ending:
        """Kill a child unless it has ended already; how it ended."""
        try:
            return self._order(END, pid)
        except OSError:
            return Ending(NOBODY_KNOWS, "")

    def close(self) -> None:
        """End it, and its children with it."""
        self._control.close()
        try:
            self._process.wait(LEAVING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _order(self, order: int, pid: int, data: bytes = b"", *channel: int) -> Ending:
        with self._lock:
            try:
                socket.send_fds(self._control, [ORDER.pack(order, pid or len(data))], channel)
                self._control.sendall(data)
                code, length = ORDER.unpack(self._received(ORDER.size))
                return Ending(code, self._received(length).decode(errors="replace"))
            except BaseException:
                self._control.close()  # an answer that came later would be taken for another's
                raise

    def _received(self, size: int) -> bytes:
        data = self._control.recv(size, socket.MSG_WAITALL) if size else b""
        if len(data) < size:
            raise ConnectionError("the process that starts the others has ended")
        return data


_nurseries: dict[int, Nursery] = {}  # by the process that has it: a fork of that needs another
_threaded: set[str] = set()  # modules that start threads: each child imports them by itself, which takes longer
_choosing = threading.Lock()


def nursery_of(modules: tuple[str, ...]) -> Nursery:
    """The one of this process, which has imported these; another, where it has ended."""
    with _choosing:
        nursery = _nurseries.get(os.getpid())
        if nursery is None or not nursery.alive:
            nursery = Nursery()
        wanted = {*modules} - nursery.imported - _threaded
        if wanted and not nursery.prepare(wanted):
            _threaded.update(wanted)
            nursery = Nursery()
        _nurseries[os.getpid()] = nursery
        return nursery


def _environment() -> dict[str, str]:
    """JAX there computes as it does here, but on the CPU: each process would take an accelerator for itself."""
    x64 = "1" if jax.config.read("jax_enable_x64") else "0"
    return {"JAX_PLATFORMS": "cpu", **os.environ, "JAX_ENABLE_X64": x64}


def _signal(number: int) -> str:
    known = {each.value: each.name for each in signal.Signals}
    return known.get(number, f"signal {number}")
