"""Tier A: namespaces made by bubblewrap, in which nothing of the host is left but what a view shows."""

import shutil

from tropism.errors import SandboxError
from tropism.sandbox.limits import Limits
from tropism.sandbox.view import DEVICES, View

CANNOT_BLOCK = (
    "flaws of the kernel that are reached through the system calls Python needs (tier S, a gVisor or Kata container "
    "for each session, is the answer to those)",
    "timing: code can measure how busy the machine is",
    "reading the system's shared libraries and the files of the interpreter",
)


def command(view: View, limits: Limits) -> list[str]:
    """What runs before the interpreter; the one writable place is a small /tmp in memory."""
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError("bwrap", None, "bubblewrap", "bubblewrap is not installed (the command bwrap)")
    words = [program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--size", str(limits.files), "--tmpfs", "/tmp"]  # first: what is readable may lie below it
    for path in view.system:
        words += ["--ro-bind", path, path]
    for path, target in view.links:
        words += ["--symlink", target, path]
    for folder in view.covered:
        words += ["--size", "65536", "--tmpfs", folder]
    for folder in view.allowed:
        words += ["--ro-bind", folder, folder]
    for folder in view.covered:
        words += ["--remount-ro", folder]
    for device in DEVICES:
        words += ["--dev-bind", device, device]
    words += ["--remount-ro", "/", "--chdir", "/tmp"]
    words += ["--hostname", "sandbox", "--"]
    return words
