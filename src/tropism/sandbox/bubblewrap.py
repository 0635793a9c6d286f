"""Tier A: namespaces created by bubblewrap, in which only the given mounts of the host are visible."""

from tropism.errors import SandboxError
from tropism.sandbox.launcher import open_program
from tropism.sandbox.limits import Limits
from tropism.sandbox.mounts import DEVICES, Mounts
from tropism.sandbox.shell import shell_options


def command(mounts: Mounts, limits: Limits, shell: bool = False) -> list[str]:
    """The command prefix for the interpreter. Only /tmp, a small tmpfs, is writable. A shell has programs and /proc."""
    program = open_program("bwrap")
    if program is None:
        raise SandboxError("bwrap", None, "bubblewrap", "bubblewrap is not installed (the command bwrap)")
    command = [program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += ["--size", str(limits.files), "--tmpfs", "/tmp"]  # first: readable paths may be below it
    for path in mounts.system:
        command += ["--ro-bind", path, path]
    for path, target in mounts.links:
        command += ["--symlink", target, path]
    for folder in mounts.hidden:
        command += ["--size", "65536", "--tmpfs", folder]
    for folder in mounts.allowed_paths:
        command += ["--ro-bind", folder, folder]
    for folder in mounts.hidden:
        command += ["--remount-ro", folder]
    for device in DEVICES:
        command += ["--dev-bind", device, device]
    command += shell_options(mounts.interpreter) if shell else []
    command += ["--remount-ro", "/", "--chdir", "/tmp"]
    command += ["--hostname", "sandbox", "--"]
    return command
