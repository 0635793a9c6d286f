"""Tier B: Landlock, for containers in which namespaces are not allowed; no file is writable."""

import ctypes
from typing import Any

from tropism.errors import SandboxError
from tropism.sandbox.monitor import ALWAYS_POSSIBLE
from tropism.sandbox.mounts import DEVICES, Mounts

NEEDED = 6  # the first version that restricts signals and abstract sockets
CREATE_RULESET, ASK_VERSION = 444, 1
EVERY_FILE_ACCESS = (1 << 16) - 1  # every access right of version 6: read, write, create, remove, devices
EVERY_PORT = 0b11  # bind and connect
EVERY_SCOPE = 0b11  # abstract sockets and signals

CANNOT_BLOCK = (
    "testing whether a path exists, and reading its size, its owner and the target of a link (its content cannot "
    "be read)",
    "reading the host name, the kernel version, and the ids, priorities and limits of processes",
    "reading other packages of the interpreter's own installation (not those of a virtual environment)",
    *ALWAYS_POSSIBLE,
)


def version() -> int:
    """Landlock's version; 0 if the kernel does not support it."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, libc.syscall(CREATE_RULESET, None, 0, ASK_VERSION))


def rules(mounts: Mounts) -> dict[str, Any]:
    """The restrictions that a worker applies to itself."""
    available = version()
    if available < NEEDED:
        message = f"this kernel has Landlock version {available}; version {NEEDED} is required"
        raise SandboxError("landlock", available, f"at least {NEEDED}", message)
    readable = [*mounts.readable, *DEVICES]
    return {"handled": [EVERY_FILE_ACCESS, EVERY_PORT, EVERY_SCOPE], "readable": readable}
