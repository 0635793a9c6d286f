"""Counts the descendants of a process."""

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path

SET_CHILD_SUBREAPER = 36  # prctl


def count_children() -> int:
    """The number of descendants of this process: bubblewrap's processes and the workers inside."""
    waiting, count = [os.getpid()], 0
    while waiting:
        tasks = Path(f"/proc/{waiting.pop()}/task").glob("*/children")
        found = [int(pid) for task in tasks for pid in task.read_text().split()]
        waiting += found
        count += len(found)
    return count


def stable_count() -> int:
    """The number of descendants once it no longer changes: spare workers are started in the background."""
    last = -1
    for _ in range(20):
        now = count_children()
        if now == last:
            break
        last = now
        time.sleep(0.3)
    return last


@contextlib.contextmanager
def adopt_orphans() -> Generator[Callable[[], list[int]]]:
    """Make this process the parent of descendants whose parent ends; yields a function that lists those that run.

    Workers that this process has started itself do not count: each leads a process group.
    """
    before, libc = _children(), ctypes.CDLL(None)
    libc.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def running() -> list[int]:
        return sorted(pid for pid in _children() - before if not _leads_group(pid) and not _has_ended(pid))

    try:
        yield running
    finally:
        libc.prctl(SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _children() -> set[int]:
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(pid) for task in tasks for pid in task.read_text().split()}


def _leads_group(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid) == pid
    return True


def _has_ended(pid: int) -> bool:
    """Reap a child that has ended."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG) != (0, 0)
    return True
