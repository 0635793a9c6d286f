"""Files, sockets and a process of the host that attacks aim at, so that the host can detect a success."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from tropism.sandbox.launcher import WORKER_UID, unprivileged_prefix

SECRET_VARIABLE = "TROPISM_SANDBOX_SECRET"
MODE = 0o644
START_TIMEOUT = 5.0  # seconds
OLD_MTIME = 1_000_000_000  # seconds; the modification time of the target file


@dataclass
class HostTargets:
    """An attack that succeeds prints `secret`, or writes it to a forbidden place.

    Workers run as the owner of all targets, so only the sandbox denies them access.
    """

    secret: str
    folder: str
    sockets: dict[str, socket.socket]
    decoy: "subprocess.Popen[bytes]"

    @classmethod
    def create(cls) -> "HostTargets":
        secret = secrets.token_hex(16)
        folder = tempfile.mkdtemp(prefix="tropism-targets-")
        os.environ[SECRET_VARIABLE] = secret
        sockets = {
            "tcp": _bind(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "udp": _bind(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "path": _bind(socket.AF_UNIX, socket.SOCK_STREAM, os.path.join(folder, "socket")),
            "abstract": _bind(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{secret}"),
        }
        targets = cls(secret, folder, sockets, _start_decoy())
        os.chmod(folder, 0o777)
        os.chmod(os.path.join(folder, "socket"), 0o777)
        targets.restore()
        return targets

    @property
    def file(self) -> str:
        return os.path.join(self.folder, "secret")

    @property
    def new(self) -> str:
        """The path of a file that does not exist."""
        return os.path.join(self.folder, "new")

    def restore(self) -> None:
        """Undo the effects of an attack that succeeded."""
        for path in (self.file, self.new):
            if os.path.lexists(path):
                os.unlink(path)
        with open(self.file, "w") as file:
            file.write(self.secret)
        os.chmod(self.file, MODE)
        os.utime(self.file, (OLD_MTIME, OLD_MTIME))
        if os.geteuid() == 0:
            os.chown(self.file, WORKER_UID, WORKER_UID)
            os.chown(self.folder, WORKER_UID, WORKER_UID)
        if self.decoy.poll() is not None:
            self.decoy = _start_decoy()

    def variables(self) -> dict[str, Any]:
        """The variables defined for the code of an attack."""
        return {
            "DONE": self.secret,
            "FILE": self.file,
            "NEW": self.new,
            "FOLDER": self.folder,
            "TCP": self.sockets["tcp"].getsockname(),
            "UDP": self.sockets["udp"].getsockname(),
            "SOCKET": self.sockets["path"].getsockname(),
            "ABSTRACT": self.secret,
            "DECOY": self.decoy.pid,
            "ADDRESS": _memory_address(self.decoy.pid),
            "SERVER": os.getpid(),
        }

    def file_changed(self) -> bool:
        """Whether the content, mode or modification time of the file has changed."""
        try:
            status = os.stat(self.file)
            with open(self.file) as file:
                same = file.read() == self.secret
        except OSError:
            return True
        return not same or status.st_mode & 0o777 != MODE or status.st_mtime != OLD_MTIME

    def new_file_exists(self) -> bool:
        return os.path.lexists(self.new)

    def close(self) -> None:
        os.environ.pop(SECRET_VARIABLE, None)
        for sock in self.sockets.values():
            sock.close()
        self.decoy.kill()
        self.decoy.wait()
        shutil.rmtree(self.folder)


def was_contacted(sock: socket.socket) -> bool:
    """Whether the socket has received a connection or a datagram."""
    try:
        if sock.type == socket.SOCK_DGRAM:
            sock.recv(1)
        else:
            sock.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _bind(family: int, kind: int, address: Any) -> socket.socket:
    sock = socket.socket(family, kind)
    sock.bind(address)
    sock.setblocking(False)
    if kind == socket.SOCK_STREAM:
        sock.listen()
    return sock


def _start_decoy() -> "subprocess.Popen[bytes]":
    """Start a sleeping process of the workers' user; `close` ends it."""
    decoy = subprocess.Popen([*unprivileged_prefix(), "sleep", "300"])
    deadline = time.monotonic() + START_TIMEOUT
    while _process_name(decoy.pid) != "sleep" and time.monotonic() < deadline:
        time.sleep(0.001)
    return decoy


def _process_name(pid: int) -> str:
    with open(f"/proc/{pid}/comm") as name:
        return name.read().strip()


def _memory_address(pid: int) -> int:
    """The first mapped address of this process."""
    with open(f"/proc/{pid}/maps") as maps:
        return int(maps.read().partition("-")[0] or "0", 16)


def was_killed(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() == -signal.SIGKILL
