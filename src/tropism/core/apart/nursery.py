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

from tropism.core.apart.inside import END, FIT, KILL, ORDER, START
from tropism.errors import ProcessError

LEAVING = 5.0  # seconds that a nursery has to end
NOBODY_KNOWS = 256  # in place of an exit code
BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from tropism.core.apart.inside import main
main(int(sys.argv[1]), sys.argv[3:])
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
    """One for a set of modules. JAX runs threads in this process, which therefore cannot be forked itself."""

    def __init__(self, modules: tuple[str, ...]):
        self.dropped: deque[int] = deque()  # children that nobody has any more; the next order ends them
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", BOOT, str(theirs.fileno()), json.dumps(sys.path), *modules],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the server, which lets steps under way finish
                env=_environment(),
            )
        self.fit = self._control.recv(len(FIT)) == FIT

    @property
    def alive(self) -> bool:
        return self._control.fileno() >= 0 and self._process.poll() is None

    def start(self, channel: int) -> int:
        """The number of a process that answers at this end of a channel."""
        try:
            while self.dropped:
                self._order(END, self.dropped.popleft())
            pid, why = self._order(START, 0, channel)
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
            return  # the children of a nursery end with it

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

    def _order(self, order: int, pid: int, *channel: int) -> Ending:
        with self._lock:
            try:
                socket.send_fds(self._control, [ORDER.pack(order, pid)], channel)
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


_nurseries: dict[tuple[int, tuple[str, ...]], Nursery] = {}
_starting = threading.Lock()


def nursery_of(modules: tuple[str, ...]) -> Nursery:
    """The one of this process that has imported these; another, where it has ended."""
    which = os.getpid(), modules
    with _starting:
        if which not in _nurseries or not _nurseries[which].alive:
            _nurseries[which] = _begun(modules)
        return _nurseries[which]


def _begun(modules: tuple[str, ...]) -> Nursery:
    nursery = Nursery(modules)
    if not nursery.fit and modules:  # then each child has to import them by itself, which takes longer
        nursery.close()
        nursery = Nursery(())
    if not nursery.fit:
        nursery.close()
        raise ProcessError("process", sys.executable, "one that starts", "the process that starts others has ended")
    atexit.register(nursery.close)
    return nursery


def _environment() -> dict[str, str]:
    """JAX there computes as it does here, but on the CPU: each process would take an accelerator for itself."""
    x64 = "1" if jax.config.read("jax_enable_x64") else "0"
    return {"JAX_PLATFORMS": "cpu", **os.environ, "JAX_ENABLE_X64": x64}


def _signal(number: int) -> str:
    known = {each.value: each.name for each in signal.Signals}
    return known.get(number, f"signal {number}")
