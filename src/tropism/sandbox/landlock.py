"""Tier B: Landlock in place of namespaces, for containers that refuse those; nothing is writable."""

import ctypes
from typing import Any

from tropism.errors import SandboxError
from tropism.sandbox.view import DEVICES, View

NEEDED = 6  # the first version that keeps signals and abstract sockets within
CREATE_RULESET, ASK_VERSION = 444, 1
EVERY_FILE_ACCESS = (1 << 16) - 1  # all that version 6 knows of: reading, writing, making, removing, devices
EVERY_PORT = 0b11  # bind and connect
EVERY_SCOPE = 0b11  # abstract sockets and signals

CANNOT_BLOCK = (
    "asking whether a path exists, how large it is and whom it belongs to (its content cannot be read)",
    "the host's name, its kernel's version, and the numbers of its processes",
    "reading the files of the interpreter's own installation, other packages beside it included",
    "threads are bounded by memory, and by one limit that all workers share",
    "flaws of the kernel that are reached through the system calls Python needs",
    "timing: code can measure how busy the machine is",
)


def version() -> int:
    """Landlock's version; 0 where the kernel has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, libc.syscall(CREATE_RULESET, None, 0, ASK_VERSION))


def rules(view: View) -> dict[str, Any]:
    """What a worker restricts itself to."""
    found = version()
    if found < NEEDED:
        words = f"this kernel has Landlock version {found}, and {NEEDED} is needed"
        raise SandboxError("landlock", found, f"at least {NEEDED}", words)
    readable = [*view.readable, *DEVICES]
    return {"handled": [EVERY_FILE_ACCESS, EVERY_PORT, EVERY_SCOPE], "readable": readable}
