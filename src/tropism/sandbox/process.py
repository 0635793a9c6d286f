"""The parent's side of a worker: requests, captured output, time limits and termination."""

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time
import weakref
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import NamedTuple

from tropism.errors import SandboxError, StateError
from tropism.sandbox.cgroup import ControlGroup
from tropism.sandbox.launcher import kill_group
from tropism.sandbox.limits import Limits
from tropism.sandbox.monitor import LOW_PRIORITY, NORMAL_PRIORITY, WorkerMonitor
from tropism.sandbox.worker import HEADER, NO_TOKEN, NOT_CONFINED

START_TIMEOUT = 20.0  # seconds a worker may take to confine itself
EXIT_TIMEOUT, KILL_TIMEOUT = 1.0, 5.0  # seconds a worker that exits by itself, and one that is killed, may take
MAX_FRAME = 2**20  # bytes; longer frames are rejected
READ_SIZE = 65536
CREDENTIALS = struct.Struct("3i")
KILLED_LATER = 500  # oom_score_adj: if the memory of its group runs out, a process it has started is killed first
MIN_WAIT = 0.02  # seconds between two reads of the CPU clock
CHECK_INTERVAL = 0.05  # seconds between two checks of the monitor
CORES = os.cpu_count() or 1


class WorkerReply(NamedTuple):
    """`kind` is empty if the worker ended, or was killed, before it replied."""

    kind: bytes
    payload: bytes


NO_REPLY = WorkerReply(b"", b"")


class CapturedStream:
    """The output of one stream up to a limit; the rest is discarded."""

    def __init__(self, limit: int):
        self.data = bytearray()
        self.truncated = False
        self._limit = limit

    def add(self, data: bytes) -> None:
        space_left = self._limit - len(self.data)
        self.data += data[:space_left]
        self.truncated = self.truncated or len(data) > space_left


@dataclass
class WorkerRequest:
    """One request: its limits, deadline and captured output. Replies carry its token, which no earlier request had,
    so code cannot reply to a request before it is sent. `exceeded` is the name of the limit that ended the worker."""

    limits: Limits
    out: CapturedStream
    err: CapturedStream
    deadline: float
    token: bytes = field(default_factory=lambda: os.urandom(len(NO_TOKEN)))
    exceeded: str | None = None
    nice: int = NORMAL_PRIORITY

    @classmethod
    def start(cls, limits: Limits) -> "WorkerRequest":
        return cls(limits, CapturedStream(limits.output), CapturedStream(limits.output), time.monotonic() + limits.wall)

    @property
    def timed_out(self) -> bool:
        return self.exceeded in ("wall", "cpu")


class Worker:
    """Stopped by SIGSTOP between requests, so that remaining threads use no CPU time."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        channel: socket.socket,
        has_namespaces: bool,
        group: ControlGroup | None = None,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.pid = 0
        self._has_namespaces = has_namespaces
        self._channel = channel
        self._out, self._err = process.stdout.fileno(), process.stderr.fileno()
        self._received = b""
        self._pidfd = -1
        self._monitor: WorkerMonitor | None = None
        self._in_use = threading.Lock()
        self._poll = select.poll()
        for fd in (channel.fileno(), self._out, self._err):
            os.set_blocking(fd, False)
            self._poll.register(fd, select.POLLIN)
        self._fds: list[int] = []  # file descriptors
        self._groups = [] if group is None else [group]
        self._command_group: ControlGroup | None = None
        self._finalizer = weakref.finalize(self, _end, process, channel, self._fds, self._groups)

    @property
    def alive(self) -> bool:
        return self._finalizer.alive

    @property
    def has_files(self) -> bool:
        return self._has_namespaces

    @contextlib.contextmanager
    def open_folder(self) -> Generator[int]:
        """The worker's folder, as an open file; the worker is not ended while it is in use."""
        with self._in_use:
            if not self.alive or self._monitor is None or self._monitor.folder is None:
                raise StateError("worker", "ended", "a worker with files", "the worker has ended")
            yield self._monitor.folder

    def await_ready(self) -> None:
        """Wait until the worker has confined itself; a failure before that raises SandboxError."""
        if self._pidfd >= 0:
            return
        request = WorkerRequest.start(Limits(wall=START_TIMEOUT))
        request.token = NO_TOKEN
        reply = self._await_reply(request)
        if reply.kind != b"R" or not self.pid:
            code = self.end(EXIT_TIMEOUT)
            reason = bytes(request.err.data).decode(errors="replace").strip() or f"exit code {code}"
            failure = "refused to run" if code == NOT_CONFINED else "did not start"
            raise SandboxError("worker", code, "a worker that confines itself", f"the sandbox {failure}: {reason}")
        try:
            self._watch()
            for group in self._groups:
                if self.pid not in group.processes():  # it was started before its parent was in the group
                    group.add(self.pid)
        except SandboxError:
            self.end()
            raise
        self._signal(signal.SIGSTOP)

    def _watch(self) -> None:
        """Open what is needed to signal and to watch the worker."""
        try:
            self._pidfd = os.pidfd_open(self.pid)
            self._fds.append(self._pidfd)
            signal.pidfd_send_signal(self._pidfd, 0)
        except (AttributeError, OSError) as error:  # an old kernel, or a container that denies it
            message = f"processes cannot be signalled reliably: pidfd_open or pidfd_send_signal fails ({error})"
            raise SandboxError("pidfd_open", str(error), "a kernel with pidfd_open", message) from None
        self._monitor = WorkerMonitor(self.pid, self._has_namespaces, self._fds)

    def notify(self, kind: bytes, payload: bytes) -> None:
        """Send a message that has no reply."""
        self._send(kind, payload, WorkerRequest.start(Limits()))

    def send_request(self, kind: bytes, payload: bytes, request: WorkerRequest) -> WorkerReply:
        """Send a request and wait for the reply, at most until the deadline."""
        with self._in_use:
            if not self.alive:
                return NO_REPLY
            self._signal(signal.SIGCONT)
            reply = self._await_reply(request) if self._send(kind, payload, request) else NO_REPLY
            if not reply.kind:
                if request.exceeded is None and any(group.ran_out_of_memory() for group in self._groups):
                    request.exceeded = "memory"
                return NO_REPLY
            self._signal(signal.SIGSTOP)
            self._set_priority(request, NORMAL_PRIORITY)
            self._drain(request)
            return NO_REPLY if self._exceeds_limit(request) or self._left_processes() else reply

    def join(self, group: ControlGroup) -> None:
        """Move the worker, and with it every process that it starts, into a group, which ends with the worker."""
        self._groups.append(group)
        self._command_group = group
        group.add(self.pid)
        with open(f"/proc/{self.pid}/oom_score_adj", "w") as score:
            score.write(str(KILLED_LATER))

    def _left_processes(self) -> bool:
        """Whether processes that the worker has started are still running after its reply."""
        deadline = time.monotonic() + EXIT_TIMEOUT
        while self._command_group is not None and self._command_group.processes() - {self.pid}:
            if time.monotonic() > deadline:
                return True
            time.sleep(0.002)
        return False

    def end(self, timeout: float = 0.0) -> int:
        """Kill the worker, unless it exits within `timeout` seconds; returns its exit code.

        Another thread may be waiting for a reply; it gets none.
        """
        if self._in_use.locked():
            self.kill()
        with self._in_use:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout)
            self._finalizer()
        return _exit_code(self.process.returncode)

    def _send(self, kind: bytes, payload: bytes, request: WorkerRequest) -> bool:
        """Returns whether everything was sent."""
        data = memoryview(HEADER.pack(kind, request.token, len(payload)) + payload)
        while data:
            try:
                data = data[self._channel.send(data) :]
            except BlockingIOError:
                select.select([], [self._channel], [], MIN_WAIT)
                if time.monotonic() > request.deadline:
                    request.exceeded = "wall"
                    return False
            except OSError:
                return False
        return True

    def _await_reply(self, request: WorkerRequest) -> WorkerReply:
        start, next_check = self._cpu_time(), time.monotonic() + CHECK_INTERVAL
        while (reply := self._next_frame(request.token)) is None:
            now = time.monotonic()
            time_left, cpu_left = request.deadline - now, request.limits.cpu - (self._cpu_time() - start)
            if time_left <= 0 or cpu_left <= 0:
                request.exceeded = "wall" if time_left <= 0 else "cpu"
                return NO_REPLY
            if now >= next_check:
                if self._exceeds_limit(request):
                    return NO_REPLY
                self._set_priority(request, LOW_PRIORITY)
                next_check = now + CHECK_INTERVAL
            wait = min(time_left, max(cpu_left / CORES, MIN_WAIT), CHECK_INTERVAL)
            if not self._read(request, wait):
                self._drain(request)
                return self._next_frame(request.token) or NO_REPLY
        return reply

    def _set_priority(self, request: WorkerRequest, nice: int) -> None:
        """Steps that take long yield to short ones."""
        if self._monitor is not None and request.nice != nice:
            self._monitor.set_priority(nice)
            request.nice = nice

    def _exceeds_limit(self, request: WorkerRequest) -> bool:
        # A group of commands enforces all that the monitor checks; for code, the monitor acts before the group does.
        if self._monitor is not None and self._command_group is None:
            request.exceeded = self._monitor.exceeded_limit(request.limits)
        return request.exceeded is not None

    def _read(self, request: WorkerRequest, seconds: float) -> bool:
        """Read what is available; False if the worker has ended."""
        for fd, _ in self._poll.poll(seconds * 1000 + 0.5):
            if fd != self._channel.fileno():
                self._read_stream(fd, request)
            elif not self._read_channel():
                return False
        return True

    def _read_stream(self, fd: int, request: WorkerRequest) -> bool:
        try:
            data = os.read(fd, READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            with contextlib.suppress(KeyError):
                self._poll.unregister(fd)
            return False
        (request.out if fd == self._out else request.err).add(data)
        return True

    def _read_channel(self) -> bool:
        try:
            data = self._channel.recv(READ_SIZE) if self.pid else self._receive_with_credentials()
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._received += data
        return bool(data) and len(self._received) <= 2 * MAX_FRAME

    def _receive_with_credentials(self) -> bytes:
        """The first frame is sent before any code has run; with it the kernel reports the sender's process id."""
        data, extra, _, _ = self._channel.recvmsg(READ_SIZE, socket.CMSG_SPACE(CREDENTIALS.size))
        sent = (part for _, kind, part in extra if kind == socket.SCM_CREDENTIALS)
        self.pid = next((CREDENTIALS.unpack(part)[0] for part in sent), 0)
        return data

    def _next_frame(self, token: bytes) -> WorkerReply | None:
        """The next frame with this token; frames with another one are discarded."""
        while len(self._received) >= HEADER.size:
            kind, sent_token, length = HEADER.unpack_from(self._received)
            end = HEADER.size + length
            if length > MAX_FRAME:
                return NO_REPLY
            if len(self._received) < end:
                return None
            payload, self._received = self._received[HEADER.size : end], self._received[end:]
            if sent_token == token:
                return WorkerReply(kind, payload)
        return None

    def _drain(self, request: WorkerRequest) -> None:
        """Read the output printed before the reply: it is in the pipes by now."""
        for fd in (self._out, self._err):
            while self._read_stream(fd, request) and time.monotonic() <= request.deadline:
                continue

    def _cpu_time(self) -> float:
        """Seconds of CPU time used by all threads of the worker."""
        if not self.pid:
            return 0.0
        with contextlib.suppress(OSError):
            return time.clock_gettime(~self.pid << 3 | 2)  # clock id of another process's CPU clock
        return 0.0

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """Kill the worker, but keep its files open until `end`."""
        self._signal(signal.SIGKILL)
        kill_group(self.process)


def _exit_code(code: int) -> int:
    """Convert bubblewrap's 128 + signal to subprocess's −signal."""
    return 128 - code if 128 < code < 128 + 65 else code


def _end(
    process: "subprocess.Popen[bytes]", channel: socket.socket, fds: list[int], groups: list[ControlGroup]
) -> None:
    """Kill the worker and close its files; also runs at interpreter exit."""
    channel.close()
    kill_group(process)
    process.wait(KILL_TIMEOUT)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    while fds:
        os.close(fds.pop())
    while groups:
        groups.pop().remove()
