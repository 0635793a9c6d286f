"""What attacks go for: files, sockets and a process of the host, where a success can be seen from the host."""

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

from tropism.sandbox.launcher import USER, without_root

VARIABLE = "TROPISM_BAIT"
MODE = 0o644
STARTING = 5.0  # seconds
PAST = 1_000_000_000  # seconds; when the bait was last changed


@dataclass
class Bait:
    """`secret` is what attacks print when they succeed, or write where they should not be able to.

    Everything belongs to the user that workers run as, so that only the sandbox keeps them from it.
    """

    secret: str
    folder: str
    sockets: dict[str, socket.socket]
    decoy: "subprocess.Popen[bytes]"

    @classmethod
    def lay(cls) -> "Bait":
        secret = secrets.token_hex(16)
        folder = tempfile.mkdtemp(prefix="tropism-bait-")
        os.environ[VARIABLE] = secret
        sockets = {
            "tcp": _bound(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "udp": _bound(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "path": _bound(socket.AF_UNIX, socket.SOCK_STREAM, os.path.join(folder, "socket")),
            "abstract": _bound(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{secret}"),
        }
        bait = cls(secret, folder, sockets, _decoy())
        os.chmod(folder, 0o777)
        os.chmod(os.path.join(folder, "socket"), 0o777)
        bait.renew()
        return bait

    @property
    def file(self) -> str:
        return os.path.join(self.folder, "secret")

    @property
    def new(self) -> str:
        """A file that is not there."""
        return os.path.join(self.folder, "new")

    def renew(self) -> None:
        """As it was before an attack got through."""
        for path in (self.file, self.new):
            if os.path.lexists(path):
                os.unlink(path)
        with open(self.file, "w") as file:
            file.write(self.secret)
        os.chmod(self.file, MODE)
        os.utime(self.file, (PAST, PAST))
        if os.geteuid() == 0:
            os.chown(self.file, USER, USER)
            os.chown(self.folder, USER, USER)
        if self.decoy.poll() is not None:
            self.decoy = _decoy()

    def names(self) -> dict[str, Any]:
        """What the code of an attack knows of it."""
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
            "ADDRESS": _address(self.decoy.pid),
            "SERVER": os.getpid(),
        }

    def changed(self) -> bool:
        """Whether the file is not what it was."""
        try:
            status = os.stat(self.file)
            with open(self.file) as file:
                same = file.read() == self.secret
        except OSError:
            return True
        return not same or status.st_mode & 0o777 != MODE or status.st_mtime != PAST

    def exists(self) -> bool:
        """Whether there is a file that was not there."""
        return os.path.lexists(self.new)

    def take_up(self) -> None:
        os.environ.pop(VARIABLE, None)
        for sock in self.sockets.values():
            sock.close()
        self.decoy.kill()
        self.decoy.wait()
        shutil.rmtree(self.folder)


def reached(sock: socket.socket) -> bool:
    """Whether somebody connected or sent something."""
    try:
        if sock.type == socket.SOCK_DGRAM:
            sock.recv(1)
        else:
            sock.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _bound(family: int, kind: int, address: Any) -> socket.socket:
    sock = socket.socket(family, kind)
    sock.bind(address)
    sock.setblocking(False)
    if kind == socket.SOCK_STREAM:
        sock.listen()
    return sock


def _decoy() -> "subprocess.Popen[bytes]":
    """A process of the workers' user that sleeps; it ends when the bait is taken up, or by itself."""
    decoy = subprocess.Popen([*without_root(), "sleep", "300"])
    deadline = time.monotonic() + STARTING
    while _name(decoy.pid) != "sleep" and time.monotonic() < deadline:
        time.sleep(0.001)
    return decoy


def _name(pid: int) -> str:
    with open(f"/proc/{pid}/comm") as name:
        return name.read().strip()


def _address(pid: int) -> int:
    """Where memory of this process begins."""
    with open(f"/proc/{pid}/maps") as maps:
        return int(maps.read().partition("-")[0] or "0", 16)


def ended(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() == -signal.SIGKILL
