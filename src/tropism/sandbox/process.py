"""One worker as its parent sees it: frames to it, what it prints, how long it takes, and its end."""

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import time
import weakref
from dataclasses import dataclass
from typing import NamedTuple

from tropism.errors import SandboxError
from tropism.sandbox.limits import Limits
from tropism.sandbox.worker import HEADER, REFUSED

STARTING = 20.0  # seconds a worker may take to confine itself
LEAVING = 1.0  # seconds that a worker which ends by itself has to do so
ENDING = 5.0  # seconds until a killed worker is gone
LARGEST_FRAME = 2**20  # bytes; a longer one is no answer
READ_SIZE = 65536
CREDENTIALS = struct.Struct("3i")
SHORTEST_WAIT = 0.02  # seconds between two looks at the CPU clock
CORES = os.cpu_count() or 1


class Reply(NamedTuple):
    """`kind` is empty where the worker ended, or had to be ended, before it answered."""

    kind: bytes
    payload: bytes


class Printed:
    """What came from one stream, up to a limit; the rest is read and thrown away."""

    def __init__(self, most: int):
        self.data = bytearray()
        self.cut = False
        self._most = most

    def add(self, data: bytes) -> None:
        room = self._most - len(self.data)
        self.data += data[:room]
        self.cut = self.cut or len(data) > room


@dataclass
class Exchange:
    """One request and all that came of it."""

    limits: Limits
    out: Printed
    err: Printed
    deadline: float
    timed_out: bool = False

    @classmethod
    def begin(cls, limits: Limits) -> "Exchange":
        return cls(limits, Printed(limits.output), Printed(limits.output), time.monotonic() + limits.wall)


class Worker:
    """Stopped between requests, so that threads left behind use nothing."""

    def __init__(self, process: "subprocess.Popen[bytes]", channel: socket.socket):
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.pid = 0
        self._channel = channel
        self._out, self._err = process.stdout.fileno(), process.stderr.fileno()
        self._received = b""
        self._pidfd = -1
        self._poll = select.poll()
        for fd in (channel.fileno(), self._out, self._err):
            os.set_blocking(fd, False)
            self._poll.register(fd, select.POLLIN)
        self._held: list[int] = []  # file descriptors
        self._finalizer = weakref.finalize(self, _end, process, channel, self._held)

    @property
    def alive(self) -> bool:
        return self._finalizer.alive

    def await_ready(self) -> None:
        """Wait until it has confined itself; whatever happens before that is a refusal, not a result."""
        if self._pidfd >= 0:
            return
        exchange = Exchange.begin(Limits(wall=STARTING))
        reply = self._wait(exchange)
        if reply.kind != b"R" or not self.pid:
            code = self.end(LEAVING)
            why = bytes(exchange.err.data).decode(errors="replace").strip() or f"exit code {code}"
            how = "refused to run" if code == REFUSED else "did not start"
            raise SandboxError("worker", code, "a worker that confines itself", f"the sandbox {how}: {why}")
        self._pidfd = os.pidfd_open(self.pid)
        self._held.append(self._pidfd)
        self._signal(signal.SIGSTOP)

    def tell(self, kind: bytes, payload: bytes) -> None:
        """Send what has no answer."""
        self._send(kind, payload, Exchange.begin(Limits()))

    def ask(self, kind: bytes, payload: bytes, exchange: Exchange) -> Reply:
        """Send a request and wait for the answer; a worker that takes too long is ended."""
        self._signal(signal.SIGCONT)
        reply = Reply(b"", b"")
        if self._send(kind, payload, exchange):
            reply = self._wait(exchange)
        if reply.kind:
            self._signal(signal.SIGSTOP)
            self._drain(exchange)
        return reply

    def end(self, patience: float = 0.0) -> int:
        """Kill it, unless it ends by itself within so many seconds; how it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        self._finalizer()
        code = self.process.returncode
        return -signal.SIGKILL if code is None else _exit_code(code)  # None: another thread is ending it, too

    def _send(self, kind: bytes, payload: bytes, exchange: Exchange) -> bool:
        """Whether all of it was taken."""
        data = memoryview(HEADER.pack(kind, len(payload)) + payload)
        while data:
            try:
                data = data[self._channel.send(data) :]
            except BlockingIOError:
                select.select([], [self._channel], [], SHORTEST_WAIT)
                if time.monotonic() > exchange.deadline:
                    exchange.timed_out = True
                    return False
            except OSError:
                return False
        return True

    def _wait(self, exchange: Exchange) -> Reply:
        start = self._cpu()
        while (reply := self._frame()) is None:
            left = exchange.deadline - time.monotonic()
            cpu_left = exchange.limits.cpu - (self._cpu() - start)
            if left <= 0 or cpu_left <= 0:
                exchange.timed_out = True
                return Reply(b"", b"")
            wait = min(left, max(cpu_left / CORES, SHORTEST_WAIT))
            if not self._read(exchange, wait):
                self._drain(exchange)
                return self._frame() or Reply(b"", b"")
        return reply

    def _read(self, exchange: Exchange, seconds: float) -> bool:
        """Take in what there is; False at the worker's end."""
        for fd, _ in self._poll.poll(seconds * 1000 + 0.5):
            if fd != self._channel.fileno():
                self._read_stream(fd, exchange)
            elif not self._read_channel():
                return False
        return True

    def _read_stream(self, fd: int, exchange: Exchange) -> bool:
        try:
            data = os.read(fd, READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            with contextlib.suppress(KeyError):
                self._poll.unregister(fd)
            return False
        (exchange.out if fd == self._out else exchange.err).add(data)
        return True

    def _read_channel(self) -> bool:
        try:
            data = self._channel.recv(READ_SIZE) if self.pid else self._first_words()
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._received += data
        return bool(data) and len(self._received) <= 2 * LARGEST_FRAME

    def _first_words(self) -> bytes:
        """They come before any code was run, and the kernel says from which process."""
        data, extra, _, _ = self._channel.recvmsg(READ_SIZE, socket.CMSG_SPACE(CREDENTIALS.size))
        sent = (part for _, kind, part in extra if kind == socket.SCM_CREDENTIALS)
        self.pid = next((CREDENTIALS.unpack(part)[0] for part in sent), 0)
        return data

    def _frame(self) -> Reply | None:
        if len(self._received) < HEADER.size:
            return None
        kind, length = HEADER.unpack_from(self._received)
        end = HEADER.size + length
        if length > LARGEST_FRAME:
            return Reply(b"", b"")
        if len(self._received) < end:
            return None
        payload, self._received = self._received[HEADER.size : end], self._received[end:]
        return Reply(kind, payload)

    def _drain(self, exchange: Exchange) -> None:
        """What was printed before the answer is in the pipes by now."""
        for fd in (self._out, self._err):
            while self._read_stream(fd, exchange) and time.monotonic() <= exchange.deadline:
                continue

    def _cpu(self) -> float:
        """Seconds of CPU time the worker has used, in all its threads."""
        if not self.pid:
            return 0.0
        with contextlib.suppress(OSError):
            return time.clock_gettime(~self.pid << 3 | 2)  # the kernel's number of another process's CPU clock
        return 0.0

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)


def _exit_code(code: int) -> int:
    """As subprocess has it: minus the signal; bubblewrap says 128 plus the signal."""
    return 128 - code if 128 < code < 128 + 65 else code


def _end(process: "subprocess.Popen[bytes]", channel: socket.socket, held: list[int]) -> None:
    """Kill and forget, in any order of things: also at the interpreter's exit."""
    channel.close()
    process.kill()
    process.wait(ENDING)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    while held:
        os.close(held.pop())
