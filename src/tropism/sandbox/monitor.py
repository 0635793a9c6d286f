"""Limits of a worker that the kernel does not enforce without a control group: its parent checks them."""

import contextlib
import os
import re

from tropism.errors import SandboxError
from tropism.sandbox.limits import MEBIBYTE, Limits

MAX_PAGE_TABLES = 32 * MEBIBYTE  # bytes; the memory limit of a worker does not include them
MAX_FILES = 4096  # in /tmp: an empty file takes about a kilobyte of memory
NAMESPACES = ("user", "pid", "net", "ipc", "uts", "mnt")
KILLED_FIRST = 1000  # oom_score_adj: the kernel kills this process before any other if memory runs out
LOW_PRIORITY, NORMAL_PRIORITY = 5, 0  # nice values
STATUS = re.compile(rb"VmPTE:\s*(\d+) kB.*\nThreads:\s*(\d+)\n", re.DOTALL)
STATUS_SIZE = 4096
ALWAYS_POSSIBLE = (
    "kernel vulnerabilities in the system calls that Python needs (tier S, a virtual machine for each session, "
    "protects against those)",
    "timing: code can measure how busy the machine is",
    "reading the system's shared libraries and the files of the standard library",
    "exceeding the limits of threads, page tables and files for a moment: they are checked at intervals",
    "kernel memory for the buffers of the sockets and pipes that one worker may open",
    "using up the soft limit of pipe buffers that all workers share, by many sessions together",
    "asking whether another process has locked a range of a shared file (F_GETLK)",
)


class WorkerMonitor:
    """Reads the resources that a worker uses; adds the files that it opens to `fds`."""

    def __init__(self, pid: int, has_namespaces: bool, fds: list[int]):
        self._fds = fds
        self._pid = pid
        try:
            if has_namespaces:
                _check_namespaces(pid)
            self._status = self._open(f"/proc/{pid}/status", os.O_RDONLY)
            self.folder = self._open(f"/proc/{pid}/root/tmp", os.O_PATH | os.O_DIRECTORY) if has_namespaces else None
            self._autogroup = -1  # a kernel may have none
            with contextlib.suppress(FileNotFoundError):
                self._autogroup = self._open(f"/proc/{pid}/autogroup", os.O_WRONLY)
            with open(f"/proc/{pid}/oom_score_adj", "w") as score:
                score.write(str(KILLED_FIRST))
        except OSError as error:
            message = f"the worker cannot be watched: {error}"
            raise SandboxError("worker", str(error), "a worker that its parent can watch", message) from None

    def exceeded_limit(self, limits: Limits) -> str | None:
        """The name of a limit that the worker exceeds."""
        try:
            found = STATUS.search(os.pread(self._status, STATUS_SIZE, 0))
        except ProcessLookupError:
            return None  # it has ended
        if found is not None and int(found[1]) * 1024 > MAX_PAGE_TABLES:
            return "memory"
        if found is not None and int(found[2]) > limits.threads:
            return "threads"
        return "files" if self._count_files() > MAX_FILES else None

    def set_priority(self, nice: int) -> None:
        """Make the worker yield to others, or no longer. A kernel that groups by session ignores the priority of
        processes; one that does not, and a server that is not root, keep a lowered one."""
        with contextlib.suppress(OSError):
            os.write(self._autogroup, str(nice).encode())
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._pid, nice)

    def _count_files(self) -> int:
        if self.folder is None:
            return 0
        usage = os.fstatvfs(self.folder)
        return usage.f_files - usage.f_ffree

    def _open(self, path: str, flags: int) -> int:
        fd = os.open(path, flags | os.O_CLOEXEC)
        self._fds.append(fd)
        return fd


def _check_namespaces(pid: int) -> None:
    """Raise SandboxError if the worker shares a namespace with this process."""
    for name in NAMESPACES:
        if os.stat(f"/proc/{pid}/ns/{name}").st_ino == os.stat(f"/proc/self/ns/{name}").st_ino:
            message = f"bubblewrap shares the host's {name} namespace with the worker"
            raise SandboxError("bwrap", name, "a bubblewrap that creates every namespace", message)
