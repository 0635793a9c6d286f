"""Workers that are started ahead, each for one episode and no other."""

import atexit
import contextlib
import json
import marshal
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tropism.errors import SandboxError, ValidationError
from tropism.sandbox import bubblewrap, landlock, seccomp
from tropism.sandbox.launcher import Launcher, start
from tropism.sandbox.limits import Limits
from tropism.sandbox.process import Worker
from tropism.sandbox.view import view_of
from tropism.sandbox.worker import HEADER

Tier = Literal["A", "B"]
TIERS: tuple[Tier, ...] = ("A", "B")
CANNOT_BLOCK: dict[Tier, tuple[str, ...]] = {"A": bubblewrap.CANNOT_BLOCK, "B": landlock.CANNOT_BLOCK}
AHEAD = max(2, os.cpu_count() or 1)  # workers that wait for an episode
PAUSE = 0.01  # seconds
# The worker's own source comes first, by standard input.
BOOT = """
import marshal, os
size, source = int.from_bytes(os.read(0, 4), "little"), b""
while len(source) < size:
    source += os.read(0, size - len(source))
exec(marshal.loads(source), {"__name__": "worker"})
"""
SETTINGS = ("-s", "-P", "-S", "-B", "-X", "utf8", "-X", "frozen_modules=on")
ENVIRONMENT = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "HOME": "/tmp"}


@dataclass(frozen=True)
class Cell:
    """One way to confine a worker."""

    tier: Tier
    packages: tuple[str, ...] = ("numpy",)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.tier not in TIERS:
            raise ValidationError("tier", self.tier, "'A' or 'B'")

    def command(self) -> list[str]:
        view = view_of(self.packages)
        prefix = bubblewrap.command(view, self.limits) if self.tier == "A" else []
        return [*prefix, view.interpreter, *SETTINGS, "-c", BOOT]

    def config(self) -> dict[str, Any]:
        """What a worker is to do to itself."""
        view, alone = view_of(self.packages), self.tier == "B"
        return {
            "alone": alone,
            "parent": os.getpid(),
            "limits": self.limits.resources(alone),
            "landlock": landlock.rules(view) if alone else None,
            "filter": seccomp.program(writing=not alone).hex(),
            "packages": dict(view.packages),
        }


class Pool:
    """Hands out workers of one cell, and starts others in their place."""

    def __init__(self, cell: Cell, ahead: int = AHEAD, source: Callable[[], str] | None = None):
        self.cell = cell
        self._ahead = ahead
        self._program = marshal.dumps(compile((source or worker_source)(), "worker", "exec"))
        self._waiting: deque[Worker] = deque()
        self._lock = threading.Lock()
        self._process = os.getpid()
        view = view_of(cell.packages)
        self._launcher = Launcher(view.readable)

    def take(self) -> Worker:
        """A worker that nobody has used, ready to run code."""
        with self._lock:
            worker = self._waiting.popleft() if self._waiting else None
        self._launcher.submit(self._fill)
        if worker is not None:
            with contextlib.suppress(SandboxError):  # it was killed while it waited
                worker.await_ready()
                return worker
        worker = self._launcher.perform(self._start)
        worker.await_ready()
        return worker

    def close(self) -> None:
        """End the workers nobody took, and the others with the thread that started them."""
        if os.getpid() != self._process:
            return  # a fork: the thread and the workers are its parent's
        self._ahead = 0
        self._launcher.perform(self._empty)
        self._launcher.close()

    def _fill(self) -> None:
        """Not at once, while others wait: a start would slow the step down that the last one was taken for."""
        if 0 < len(self._waiting) < self._ahead:
            time.sleep(PAUSE)
        while len(self._waiting) < self._ahead:
            worker = self._start()
            with self._lock:
                self._waiting.append(worker)

    def _empty(self) -> None:
        while self._waiting:
            self._waiting.pop().end()

    def _start(self) -> Worker:
        command, config = self.cell.command(), json.dumps(self.cell.config()).encode()
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # the kernel says who wrote: the worker's number
        try:
            process = start(command, ENVIRONMENT, theirs)
        except OSError as error:
            ours.close()
            raise SandboxError("worker", str(error), "a worker that starts", f"no worker starts: {error}") from None
        finally:
            theirs.close()
        with contextlib.suppress(BrokenPipeError):  # a worker that has ended already is asked why when it is taken
            ours.sendall(len(self._program).to_bytes(4, "little") + self._program)
            ours.sendall(HEADER.pack(b"I", len(config)) + config)
        return Worker(process, ours)


@cache
def worker_source() -> str:
    return Path(__file__).with_name("worker.py").read_text()


def pool_of(cell: Cell) -> Pool:
    """The one pool of this process for such workers."""
    return _pool(cell, os.getpid())


@cache
def _pool(cell: Cell, process: int) -> Pool:  # noqa: ARG001  a forked process needs a pool of its own
    pool = Pool(cell)
    atexit.register(pool.close)
    return pool


def refusal(tier: Tier) -> str | None:
    """Why this tier cannot be had here; None where it can."""
    try:
        pool_of(Cell(tier)).take().end()
    except SandboxError as error:
        return f"tier {tier}: {error}"
    return None
