"""What a shell has besides Python: programs of the system, /proc, and an environment."""

import os

from tropism.sandbox.mounts import mounts_for

PROGRAM_FOLDERS = ("/bin", "/usr/bin", "/etc/alternatives", "/usr/share/git-core")
PYTHON_LINKS = ("/usr/local/bin/python", "/usr/local/bin/python3")
DEVICE_LINKS = (
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
)
CANNOT_BLOCK = (
    "locking ranges of the system's files, which other sessions could notice",
    "using up the quota of open files in transit between processes that all sessions share",
    "reading kernel information in /proc",
)
AUTHOR = {f"GIT_{role}_{field}": "agent" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}


def shell_options(interpreter: str) -> list[str]:
    """Options of bubblewrap for a shell. Its worker is the first process of the namespace: commands cannot kill it,
    and there is no other process, without a filter, whose memory they could write."""
    options = ["--as-pid-1", "--proc", "/proc"]
    for folder in filter(os.path.exists, PROGRAM_FOLDERS):
        link = os.path.islink(folder)
        options += ["--symlink", os.readlink(folder), folder] if link else ["--ro-bind", folder, folder]
    for path in PYTHON_LINKS:
        options += [] if path == interpreter else ["--symlink", interpreter, path]
    for target, path in DEVICE_LINKS:
        options += ["--symlink", target, path]
    return options


def environment(packages: tuple[str, ...]) -> dict[str, str]:
    """The environment variables of commands."""
    folders = dict.fromkeys(os.path.dirname(path) for path in mounts_for(packages).allowed_paths)
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(folders),
        "PYTHONDONTWRITEBYTECODE": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        **AUTHOR,
    }
