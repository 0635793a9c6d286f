"""Control groups: they limit the memory, kernel memory included, and the number of processes of a worker."""

import contextlib
import itertools
import os
import re
import signal
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tropism.errors import SandboxError

CONTROLLERS = ("memory", "pids")  # required; "cpu" is used where it is available
PREFIX = "tropism-"
REMOVE_TIMEOUT = 2.0  # seconds that killed processes have to leave their group
MOUNT = re.compile(r"^\S+ \S+ \S+ \S+ (\S+) .* - (cgroup2?) \S+ (\S+)$", re.MULTILINE)
VERSION_1 = {
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    "pids": ("pids.max",),
    "cpu": ("cpu.shares",),
}
VERSION_2 = {"memory": ("memory.max",), "pids": ("pids.max",), "cpu": ("cpu.weight",)}
CPU_WEIGHTS = {"cpu.shares": "341", "cpu.weight": "33"}  # a third of the default: commands yield to the server
OUT_OF_MEMORY = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)  # in memory.oom_control or memory.events
OWN = Path("/proc/self")
OPTIONAL = ("memory.memsw.limit_in_bytes", "memory.swap.max", "cpu.weight")  # not in every kernel

_numbers = itertools.count()


class ControlGroup:
    """A new group; in version 1, one in each hierarchy.

    `yields`: its processes get less CPU time than others. Without it, sessions keep the scheduling groups that the
    kernel gives them, whose priority the parent changes; in version 2 they cannot have both.
    """

    def __init__(self, memory: int, processes: int, yields: bool = True):
        parents, names = _find_parents()
        if names is VERSION_1 and not yields:
            parents = {controller: parents[controller] for controller in CONTROLLERS}
        name = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
        self._folders = list(dict.fromkeys(parent / name for parent in parents.values()))
        limits = {"memory": str(memory), "pids": str(processes)}
        try:
            for folder in self._folders:
                folder.mkdir()
            for controller, parent in parents.items():
                for file in names[controller]:
                    _write(parent / name / file, CPU_WEIGHTS.get(file) or limits[controller])
            if names is VERSION_2:
                _write(self._folders[0] / "memory.swap.max", "0")
        except OSError as error:
            self.remove()
            raise _unavailable(str(error)) from None

    def add(self, pid: int) -> None:
        """Move a process into the group; processes that it starts will be in it, too."""
        try:
            for folder in self._folders:
                (folder / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise _unavailable(str(error)) from None

    def processes(self) -> set[int]:
        return {int(pid) for pid in (self._folders[0] / "cgroup.procs").read_text().split()}

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has killed a process because the group reached its limit."""
        files = (folder / name for folder in self._folders for name in ("memory.oom_control", "memory.events"))
        texts = (file.read_text() for file in files if file.exists())
        return any(int(found[1]) > 0 for text in texts if (found := OUT_OF_MEMORY.search(text)))

    def remove(self) -> None:
        """Remove the group, whose processes have been killed."""
        deadline = time.monotonic() + REMOVE_TIMEOUT
        for folder in self._folders:
            _remove(folder, deadline)


def _remove(folder: Path, deadline: float) -> None:
    while folder.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            folder.rmdir()
            break
        time.sleep(0.005)


def _write(file: Path, text: str) -> None:
    if file.exists() or file.name not in OPTIONAL:
        file.write_text(text)


@cache
def _find_parents() -> tuple[dict[str, Path], dict[str, tuple[str, ...]]]:
    """The folder of each controller in which groups can be made, and the names of the files with its limits."""
    mounts = MOUNT.findall((OWN / "mountinfo").read_text())
    parents = {
        controller: Path(path)
        for path, kind, options in mounts
        if kind == "cgroup"
        for controller in VERSION_1
        if controller in options.split(",") and (controller in CONTROLLERS or os.access(path, os.W_OK))
    }
    if set(CONTROLLERS) <= set(parents):
        found, names = parents, VERSION_1
    else:
        unified = next((Path(path) for path, kind, _ in mounts if kind == "cgroup2"), None)
        if unified is None:
            raise _unavailable("no control groups are mounted")
        found, names = dict.fromkeys(VERSION_2, _delegated_parent(unified)), VERSION_2
    _remove_stale(found.values())
    return found, names


def _delegated_parent(mount: Path) -> Path:
    """A group of version 2 whose children can have limits: this process's own, or the one above."""
    own = re.search(r"^0::/(.*)$", (OWN / "cgroup").read_text(), re.MULTILINE)
    place = mount / (own[1] if own else "")
    reason = ""
    for parent in (place, place.parent) if place != mount else (place,):
        control = parent / "cgroup.subtree_control"
        try:
            if not set(CONTROLLERS) <= set(control.read_text().split()):
                control.write_text(" ".join(f"+{controller}" for controller in CONTROLLERS))
            return parent
        except OSError as error:
            reason = str(error)
    raise _unavailable(reason)


def _remove_stale(parents: Iterable[Path]) -> None:
    """Remove the groups of servers that no longer run. They are empty, unless a server was killed at a moment in which
    bubblewrap leaves a child behind."""
    for folder in {folder for parent in parents for folder in parent.glob(f"{PREFIX}*")}:
        server = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not Path(f"/proc/{server}").exists():
            with contextlib.suppress(OSError):
                for pid in (folder / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                _remove(folder, time.monotonic() + REMOVE_TIMEOUT)


def _unavailable(reason: str) -> SandboxError:
    message = f"no control group can be made to limit the processes of a sandbox together ({reason})"
    return SandboxError("cgroup", reason, "a control group with memory and pids", message)
