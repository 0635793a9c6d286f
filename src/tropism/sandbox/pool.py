"""Workers started in advance, each used for one episode."""

import atexit
import contextlib
import json
import marshal
import os
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tropism.errors import SandboxError, ValidationError
from tropism.sandbox import bubblewrap, landlock, seccomp, shell
from tropism.sandbox.cgroup import ControlGroup
from tropism.sandbox.launcher import Launcher, start_unprivileged
from tropism.sandbox.limits import MEBIBYTE, Limits
from tropism.sandbox.monitor import ALWAYS_POSSIBLE, MAX_PAGE_TABLES
from tropism.sandbox.mounts import mounts_for
from tropism.sandbox.process import Worker
from tropism.sandbox.worker import HEADER, NO_TOKEN

Tier = Literal["A", "B"]
TIERS: tuple[Tier, ...] = ("A", "B")
CANNOT_BLOCK: dict[Tier, tuple[str, ...]] = {"A": ALWAYS_POSSIBLE, "B": landlock.CANNOT_BLOCK}
SESSION_MEMORY = 16 * MEBIBYTE  # of an idle worker and its files; benchmarks/sandbox_load.py measures it
SPARE_WORKERS = max(2, os.cpu_count() or 1)  # workers started in advance
OTHER_PROCESSES: dict[Tier, int] = {"A": 1, "B": 0}  # in a worker's group: bubblewrap
REFILL_DELAY = 0.01  # seconds
# Reads the worker's compiled modules from standard input; the last one has `main`. If the server was killed before
# bubblewrap could ask the kernel to end with it, writing fails, before the slow imports.
BOOTSTRAP = """
import marshal, os, sys, types
os.write(0, b"")
size, source = int.from_bytes(os.read(0, 4), "little"), b""
while len(source) < size:
    source += os.read(0, size - len(source)) or os._exit(0)
for name, code in marshal.loads(source):
    module = sys.modules[name] = types.ModuleType(name)
    exec(code, vars(module))
module.main()
"""
INTERPRETER_OPTIONS = ("-s", "-P", "-S", "-B", "-X", "utf8", "-X", "frozen_modules=on")
ENVIRONMENT = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "HOME": "/tmp"}


@dataclass(frozen=True)
class SandboxSpec:
    """How a worker is confined."""

    tier: Tier
    packages: tuple[str, ...] = ("numpy",)
    limits: Limits = field(default_factory=Limits)
    shell: bool = False  # runs commands, with any number of processes, in place of Python code

    def __post_init__(self) -> None:
        if self.tier not in TIERS:
            raise ValidationError("tier", self.tier, "'A' or 'B'")
        if self.shell and self.tier != "A":
            raise ValidationError("tier", self.tier, "'A' for a shell: tier B cannot start processes")
        mounts_for(self.packages)  # raises for a package that is not installed

    def command(self) -> list[str]:
        mounts = mounts_for(self.packages)
        prefix = bubblewrap.command(mounts, self.limits, self.shell) if self.tier == "A" else []
        return [*prefix, mounts.interpreter, *INTERPRETER_OPTIONS, "-c", BOOTSTRAP]

    def config(self) -> dict[str, Any]:
        """The restrictions that a worker applies to itself."""
        mounts, without_namespaces = mounts_for(self.packages), self.tier == "B"
        return {
            "without_namespaces": without_namespaces,
            "parent": os.getpid(),
            "limits": self.limits.resources(without_namespaces, self.shell),
            "landlock": landlock.rules(mounts) if without_namespaces else None,
            "filter": seccomp.program(writing=not without_namespaces, processes=self.shell).hex(),
            "packages": dict(mounts.packages),
            "folders": [] if without_namespaces else ["/tmp"],
            "explanations": self._explanations(),
        }

    def _explanations(self) -> dict[str, str]:
        """What an exception tells the agent about the limit that caused it."""
        packages = ", ".join(self.packages) or "none"
        return {
            "memory": f"the memory limit is {self.limits.memory // MEBIBYTE} MiB",
            "threads": f"the limit is {self.limits.threads} threads",
            "packages": f"packages that can be imported beside the standard library: {packages}",
        }


class Pool:
    """Hands out workers of one spec and starts replacements."""

    def __init__(self, spec: SandboxSpec, spares: int = SPARE_WORKERS, source: Callable[[], str] | None = None):
        self.spec = spec
        self._spares = spares
        self._program = marshal.dumps(_modules(spec, (source or worker_source)()))
        self._waiting: deque[Worker] = deque()
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._failure: SandboxError | None = None  # of the last start
        self._retry: Future[Any] | None = None
        self._uses_groups = not spec.shell  # a shell joins a group when it is handed out, or fails
        mounts = mounts_for(spec.packages)
        self._launcher = Launcher(mounts.readable)

    def take(self) -> Worker:
        """An unused worker that is ready to run code."""
        with self._lock:
            worker = self._waiting.popleft() if self._waiting else None
        self._launcher.submit(self._fill)
        if worker is not None:
            with contextlib.suppress(SandboxError):  # it was killed in the meantime
                worker.await_ready()
                return worker
        return self._start_ready(self._launcher.run)

    def start_failure(self) -> str | None:
        """Why the last start failed, if it did; another one is tried in the background."""
        if self._failure is not None and (self._retry is None or self._retry.done()):
            self._retry = self._launcher.submit(lambda: self._start_ready(lambda start: start()).end())
        return None if self._failure is None else str(self._failure)

    def _start_ready(self, run: Callable[[Callable[[], Worker]], Worker]) -> Worker:
        try:
            worker = run(self._start)
            worker.await_ready()
        except SandboxError as error:
            self._failure = error
            raise
        self._failure = None
        return worker

    def close(self) -> None:
        """End all workers: spare ones here, the others with the thread that started them."""
        if os.getpid() != self._process:
            return  # a fork: thread and workers belong to its parent
        self._spares = 0
        self._launcher.run(self._empty)
        self._launcher.close()

    def _fill(self) -> None:
        """Start spare workers, with a delay while there are any: a start slows down the step of the last one taken."""
        if 0 < len(self._waiting) < self._spares:
            time.sleep(REFILL_DELAY)
        while len(self._waiting) < self._spares:
            worker = self._start()
            with self._lock:
                self._waiting.append(worker)

    def _empty(self) -> None:
        while self._waiting:
            self._waiting.pop().end()

    def _new_group(self) -> ControlGroup | None:
        """A group for a worker, where one can be made. It has space for what the worker's own limits allow, so that
        those are reached first."""
        limits = self.spec.limits
        if self._uses_groups:
            try:
                memory = limits.memory + limits.files + MAX_PAGE_TABLES
                return ControlGroup(memory, limits.threads + OTHER_PROCESSES[self.spec.tier], yields=False)
            except SandboxError:
                self._uses_groups = False
        return None

    def _start(self) -> Worker:
        command, config = self.spec.command(), json.dumps(self.spec.config()).encode()
        parent_end, child_end = socket.socketpair()
        parent_end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # the kernel reports the worker's process id
        try:
            environment = ENVIRONMENT | (shell.environment(self.spec.packages) if self.spec.shell else {})
            # bubblewrap asks for this itself; killed before, while it creates namespaces, it would leave a child behind
            ends_with_thread = self.spec.tier == "B"
            process = start_unprivileged(
                command, environment, child_end.fileno(), subprocess.PIPE, ends_with_thread=ends_with_thread
            )
        except OSError as error:
            parent_end.close()
            raise SandboxError("worker", str(error), "a worker that starts", f"no worker started: {error}") from None
        finally:
            child_end.close()
        group = self._new_group()
        if group is not None:
            group.add(process.pid)
        with contextlib.suppress(BrokenPipeError):  # `await_ready` reports why a worker ended
            parent_end.sendall(len(self._program).to_bytes(4, "little") + self._program)
            parent_end.sendall(HEADER.pack(b"I", NO_TOKEN, len(config)) + config)
        return Worker(process, parent_end, has_namespaces=self.spec.tier == "A", group=group)


@cache
def worker_source() -> str:
    return module_source("worker")


def module_source(name: str) -> str:
    return Path(__file__).with_name(f"{name}.py").read_text()


def _modules(spec: SandboxSpec, worker: str) -> list[tuple[str, Any]]:
    """The compiled modules of a worker's program; the last one has its function `main`."""
    sources = {name: module_source(name) for name in ("remote_calls", "remote_objects")} | {"worker": worker}
    sources |= {"shell_worker": module_source("shell_worker")} if spec.shell else {}
    return [(f"tropism.sandbox.{name}", compile(source, name, "exec")) for name, source in sources.items()]


def shared_pool(spec: SandboxSpec) -> Pool:
    """The pool of this process for workers of this spec."""
    return _shared_pool(spec, os.getpid())


@cache
def _shared_pool(spec: SandboxSpec, process: int) -> Pool:  # noqa: ARG001  a forked process needs a pool of its own
    pool = Pool(spec)
    _pools.append(pool)
    atexit.register(pool.close)
    return pool


_pools: list[Pool] = []


def start_failure(tier: Tier | None) -> str | None:
    """Why the last start of a worker of this tier failed, if it did, in any shared pool of this process."""
    failures = (pool.start_failure() for pool in _pools if pool.spec.tier == tier)
    return next((failure for failure in failures if failure is not None), None)


def unavailable_reason(tier: Tier) -> str | None:
    """Why this tier is unavailable; None if it is available."""
    try:
        shared_pool(SandboxSpec(tier)).take().end()
    except SandboxError as error:
        return f"tier {tier}: {error}"
    return None
