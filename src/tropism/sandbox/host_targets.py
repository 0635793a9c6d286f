"""Files, sockets and a process of the host that attacks aim at, so that the host can detect a success."""

import contextlib
import fcntl
import os
import secrets
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any

from tropism.sandbox.launcher import WORKER_UID, Launcher, start_unprivileged
from tropism.sandbox.mounts import mounts_for

SECRET_VARIABLE = "TROPISM_SANDBOX_SECRET"
MODE = 0o644
FOLDER, SECRET, NEW, SOCKET, DATAGRAM = "t", "secret", "new", "socket", "datagram"  # names of files
NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
FLOCK = struct.Struct("hhqqi4x")  # the kernel's struct flock: type, whence, start, length, process id
START_TIMEOUT = 5.0  # seconds
DECOY = "import os, time; os.write(1, b'x'); time.sleep(300)"
OLD_MTIME = 1_000_000_000  # seconds; the modification time of the target file


@dataclass
class HostTargets:
    """An attack that succeeds prints `secret`, or writes it to a forbidden place.

    Workers run as the owner of the targets, so only the sandbox denies them access. The folder of the targets is in
    one that only the server can change; once a worker owns it, the server acts on open files, never on paths.
    """

    secret: str
    outer: str
    folder: str
    folder_fd: int
    sockets: dict[str, socket.socket]
    decoy: "subprocess.Popen[bytes]"

    @classmethod
    def create(cls) -> "HostTargets":
        decoy = _start_decoy()  # first, because it may fail
        secret = secrets.token_hex(16)
        outer, folder_fd = _make_folders()
        folder = os.path.join(outer, FOLDER)
        os.environ[SECRET_VARIABLE] = secret
        stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        sockets = {
            "tcp": _bind(socket.AF_INET, stream, ("127.0.0.1", 0)),
            "udp": _bind(socket.AF_INET, datagram, ("127.0.0.1", 0)),
            "path": _bind(socket.AF_UNIX, stream, os.path.join(folder, SOCKET)),
            "datagram": _bind(socket.AF_UNIX, datagram, os.path.join(folder, DATAGRAM)),
            "abstract": _bind(socket.AF_UNIX, stream, f"\0{secret}"),
        }
        for name in (SOCKET, DATAGRAM):
            os.chmod(name, 0o666, dir_fd=folder_fd)
        targets = cls(secret, outer, folder, folder_fd, sockets, decoy)
        targets.restore()
        _give_to_workers(folder_fd)
        return targets

    @property
    def file(self) -> str:
        return os.path.join(self.folder, SECRET)

    @property
    def new(self) -> str:
        """The path of a file that does not exist."""
        return os.path.join(self.folder, NEW)

    def restore(self) -> None:
        """Undo the effects of an attack that succeeded."""
        for name in (SECRET, NEW):
            if (status := self._status(name)) is not None:
                remove = os.rmdir if stat.S_ISDIR(status.st_mode) else os.unlink
                remove(name, dir_fd=self.folder_fd)
        fd = os.open(SECRET, os.O_CREAT | os.O_EXCL | os.O_WRONLY | NO_LINK, MODE, dir_fd=self.folder_fd)
        try:
            os.write(fd, self.secret.encode())
            os.fchmod(fd, MODE)
            os.utime(fd, (OLD_MTIME, OLD_MTIME))
            _give_to_workers(fd)
        finally:
            os.close(fd)
        if self.decoy.poll() is not None:
            _end(self.decoy)
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
            "DATAGRAM": self.sockets["datagram"].getsockname(),
            "ABSTRACT": self.secret,
            "DECOY": self.decoy.pid,
            "ADDRESS": _memory_address(self.decoy.pid),
            "SERVER": os.getpid(),
        }

    def file_changed(self) -> bool:
        """Whether the content, mode or modification time of the file has changed."""
        try:
            fd = os.open(SECRET, os.O_RDONLY | os.O_NONBLOCK | NO_LINK, dir_fd=self.folder_fd)
        except OSError:
            return True
        with open(fd) as file:
            status = os.fstat(fd)
            same = stat.S_ISREG(status.st_mode) and file.read() == self.secret
        return not same or status.st_mode & 0o777 != MODE or status.st_mtime != OLD_MTIME

    def new_file_exists(self) -> bool:
        return self._status(NEW) is not None

    def kill_leftovers(self) -> int:
        """Kill all processes that have the secret in their arguments; returns their number."""
        found = 0
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline", "rb") as arguments:
                    has_secret = self.secret.encode() in arguments.read()
                if has_secret:
                    os.kill(int(pid), signal.SIGKILL)
                    found += 1
        return found

    def _status(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def close(self) -> None:
        os.environ.pop(SECRET_VARIABLE, None)
        for sock in self.sockets.values():
            sock.close()
        _end(self.decoy)
        os.close(self.folder_fd)
        shutil.rmtree(self.outer)  # does not follow links


def _make_folders() -> tuple[str, int]:
    """A folder that only this process can change, with another inside, which is returned as an open file."""
    outer = tempfile.mkdtemp(prefix="tropism-")  # short: paths of sockets have at most 107 bytes
    fd = os.open(outer, os.O_DIRECTORY | NO_LINK)
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            raise OSError(f"another user has replaced {outer}")
        os.mkdir(FOLDER, 0o700, dir_fd=fd)
        inner = os.open(FOLDER, os.O_DIRECTORY | NO_LINK, dir_fd=fd)
        os.fchmod(fd, 0o711)  # workers may pass through it
    finally:
        os.close(fd)
    return outer, inner


def _give_to_workers(fd: int) -> None:
    if os.geteuid() == 0:
        os.fchown(fd, WORKER_UID, WORKER_UID)


def is_locked(path: str) -> bool:
    """Whether another process holds a POSIX lock, or an exclusive lock of flock, on this file."""
    with open(path) as file:
        query = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        if FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, query))[0] != fcntl.F_UNLCK:
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # several servers may do this at the same time
        except BlockingIOError:
            return True
    return False


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


def received_descriptor(sock: socket.socket) -> bool:
    """Whether a process has passed an open file to this datagram socket."""
    try:
        _, files, _, _ = socket.recv_fds(sock, 1, 1)
    except BlockingIOError:
        return False
    for fd in files:
        os.close(fd)
    return bool(files)


def _bind(family: int, kind: int, address: Any) -> socket.socket:
    sock = socket.socket(family, kind)
    sock.bind(address)
    sock.setblocking(False)
    if kind == socket.SOCK_STREAM:
        sock.listen()
    return sock


def _start_decoy() -> "subprocess.Popen[bytes]":
    """Start a sleeping process of the workers' user; `close` ends it."""
    mounts = mounts_for(())
    launcher = Launcher(mounts.readable)  # Python and its library may be in a folder that only root can enter
    command = [mounts.interpreter, "-S", "-c", DECOY]  # Python is always there; a program such as `sleep` might not be
    try:
        decoy = launcher.run(lambda: start_unprivileged(command, output=subprocess.PIPE))
        assert decoy.stdout is not None
        if not select.select([decoy.stdout], [], [], START_TIMEOUT)[0] or not decoy.stdout.read(1):
            _end(decoy)
            raise OSError("the process that attacks aim at did not start")
    finally:
        launcher.close()
    return decoy


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


def _memory_address(pid: int) -> int:
    """The first mapped address of this process."""
    with open(f"/proc/{pid}/maps") as maps:
        return int(maps.read().partition("-")[0] or "0", 16)
