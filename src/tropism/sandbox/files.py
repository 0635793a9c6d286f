"""The files of a worker, which the server reads and writes from outside."""

import contextlib
import ctypes
import errno
import io
import os
import secrets
import stat
import tarfile
from collections.abc import Generator, Iterator
from functools import cache
from itertools import islice
from typing import Any

from tropism.errors import MissingFileError, ValidationError
from tropism.sandbox.launcher import WORKER_UID
from tropism.sandbox.limits import MEBIBYTE
from tropism.sandbox.process import Worker

MAX_DEPTH = 32  # folders in a path; deeper files are not listed
MAX_LISTED = 10_000  # files
MAX_ARCHIVED = 50_000  # files, folders and links
MAX_NAME = 255  # bytes of a part of a path
MAX_FILE = 8 * MEBIBYTE  # bytes of a file that is read or written from outside
PATH = f"a relative path of at most {MAX_DEPTH} parts, such as 'src/main.py', without '.' and '..'"
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class SandboxFiles:
    """The folder /tmp of a worker, by its open file.

    Every part of a path is opened without following links, so no path leads out of the folder. As root, files are
    created as the workers' user, which is also the only one that the file system of a worker has.
    """

    def __init__(self, worker: Worker):
        self._worker = worker

    def sizes(self) -> dict[str, int]:
        """The size of each regular file, by path; at most `MAX_LISTED` of them."""
        with self._worker.open_folder() as outer, _open(outer, ".", FOLDER_FLAGS) as folder:
            return dict(sorted(islice(_walk(folder, "", MAX_DEPTH), MAX_LISTED)))

    def read(self, path: str) -> bytes:
        *folders, name = check_path(path)
        with (
            _errors_about(path),
            self._worker.open_folder() as outer,
            _descend(outer, folders) as folder,
            _open(folder, name, READ_FLAGS) as fd,
        ):
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise ValidationError("path", path, "the path of a file, not of a folder")
            _check_size(path, status.st_size)
            with open(fd, "rb", closefd=False) as file:
                return file.read(MAX_FILE)

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file; folders are created as needed. If it fails, the old file is unchanged."""
        *folders, name = check_path(path)
        _check_size(path, len(data))
        temporary = f".{secrets.token_hex(8)}"
        with (
            _errors_about(path),
            self._worker.open_folder() as outer,
            _worker_user(),
            _descend(outer, folders, create=True) as folder,
        ):
            try:
                with _open(folder, temporary, WRITE_FLAGS) as fd, open(fd, "wb", closefd=False) as file:
                    file.write(data)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    def read_all(self) -> dict[str, bytes]:
        """The content of every file that can be transferred; raises ValidationError if they have too many bytes."""
        found, space_left = dict[str, bytes](), self._size()
        for path, size in self.sizes().items():
            space_left -= size
            if space_left < 0:
                raise _too_large()
            with contextlib.suppress(ValidationError):  # a large file, or one with a name that is not text
                found[path] = self.read(path)
        return found

    def pack(self) -> bytes:
        """All folders, files and links, as a tar archive; raises ValidationError if there are too many."""
        packed, space_left = io.BytesIO(), self._size()
        with (
            tarfile.open(fileobj=packed, mode="w") as archive,
            self._worker.open_folder() as outer,
            _open(outer, ".", FOLDER_FLAGS) as folder,
        ):
            for count, member in enumerate(_pack(archive, folder, "", MAX_DEPTH)):
                space_left -= member.size
                if count >= MAX_ARCHIVED or space_left < 0:
                    raise _too_large()
        return packed.getvalue()

    def _size(self) -> int:
        """The size of the file system in bytes."""
        with self._worker.open_folder() as folder:
            status = os.fstatvfs(folder)
        return status.f_blocks * status.f_frsize

    def unpack(self, packed: bytes) -> None:
        """Create what an archive of `pack` has; each path is checked like any other."""
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive, self._worker.open_folder() as outer, _worker_user():
            for member in archive:
                *folders, name = check_path(member.name)
                with _descend(outer, folders, create=True) as folder:
                    _unpack(archive, member, folder, name)


def _pack(archive: tarfile.TarFile, folder: int, prefix: str, depth: int) -> Iterator[tarfile.TarInfo]:
    """Add what a folder has to the archive. Each member is yielded before it is added, so that the caller can stop."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in islice(entries, MAX_ARCHIVED + 1))
    for name in names:
        member = tarfile.TarInfo(prefix + name)
        try:
            check_path(member.name)
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, ValidationError):
            continue  # deleted meanwhile, or a name that is not text
        member.mode = status.st_mode
        if stat.S_ISLNK(member.mode):
            member.type, member.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=folder)
            yield member
            archive.addfile(member)
        elif stat.S_ISDIR(member.mode) and depth > 1:
            member.type = tarfile.DIRTYPE
            yield member
            archive.addfile(member)
            with _open(folder, name, FOLDER_FLAGS) as inner:
                yield from _pack(archive, inner, f"{prefix}{name}/", depth - 1)
        elif stat.S_ISREG(member.mode):
            member.size = status.st_size  # of a sparse file more than it takes
            yield member
            with _open(folder, name, READ_FLAGS) as fd, open(fd, "rb", closefd=False) as file:
                content = file.read(member.size).ljust(member.size, b"\0")
            archive.addfile(member, io.BytesIO(content))


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: int, name: str) -> None:
    if member.issym():
        os.symlink(member.linkname, name, dir_fd=folder)
    elif member.isdir():
        os.mkdir(name, member.mode & 0o777 | 0o700, dir_fd=folder)
    elif (content := archive.extractfile(member)) is not None:
        with _open(folder, name, WRITE_FLAGS) as fd, open(fd, "wb", closefd=False) as file:
            file.write(content.read())
            os.fchmod(fd, member.mode & 0o777)


def check_path(path: Any) -> list[str]:
    """The parts of a path; raises ValidationError if it is not a relative path inside a folder."""
    parts = path.split("/") if isinstance(path, str) else []
    for part in parts:
        encoded = part.encode("utf-8", "surrogateescape") if part.isprintable() else b""
        if part in (".", "..") or not 0 < len(encoded) <= MAX_NAME:
            raise ValidationError("path", path, PATH)
    if not 0 < len(parts) <= MAX_DEPTH:
        raise ValidationError("path", path, PATH)
    return parts


def _too_large() -> ValidationError:
    message = (
        f"the workspace cannot be copied: it has more than {MAX_ARCHIVED} files, or sparse files larger than itself"
    )
    return ValidationError("workspace", None, f"at most {MAX_ARCHIVED} files that fit into it", message)


def _check_size(path: str, size: int) -> None:
    if size > MAX_FILE:
        message = f"the file {path!r} has {size} bytes; at most {MAX_FILE} can be transferred"
        raise ValidationError("file", size, f"at most {MAX_FILE} bytes", message)


@contextlib.contextmanager
def _errors_about(path: str) -> Generator[None]:
    """Errors of the file system become errors about the path."""
    try:
        yield
    except FileNotFoundError:
        raise MissingFileError("path", path, "a file of the workspace") from None
    except OSError as error:
        links = error.errno in (errno.ELOOP, errno.ENOTDIR)
        reason = "a path without links" if links else f"a file that can be accessed ({os.strerror(error.errno or 0)})"
        raise ValidationError("path", path, reason) from None


@contextlib.contextmanager
def _open(folder: int, name: str, flags: int) -> Generator[int]:
    fd = os.open(name, flags, 0o644, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _descend(folder: int, parts: list[str], create: bool = False) -> Generator[int]:
    """Open a folder part by part."""
    with contextlib.ExitStack() as opened:
        for part in parts:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=folder)
            folder = opened.enter_context(_open(folder, part, FOLDER_FLAGS))
        yield folder


def _walk(folder: int, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    """The path and size of each regular file."""
    with os.scandir(folder) as entries:
        found = [(each.name, each.stat(follow_symlinks=False)) for each in islice(entries, MAX_LISTED)]
    for name, status in found:
        if stat.S_ISREG(status.st_mode):
            yield prefix + _printable(name), status.st_size
        elif stat.S_ISDIR(status.st_mode) and depth > 1:
            with contextlib.suppress(OSError), _open(folder, name, FOLDER_FLAGS) as inner:
                yield from _walk(inner, f"{prefix}{_printable(name)}/", depth - 1)


def _printable(name: str) -> str:
    """A name as text; bytes that are not UTF-8 are shown as escapes, and such a file cannot be read from outside."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def _worker_user() -> Generator[None]:
    """As root, let this thread access files as the workers' user."""
    if os.geteuid() != 0:
        yield
        return
    libc = _libc()
    libc.setfsgid(WORKER_UID)
    libc.setfsuid(WORKER_UID)
    try:
        yield
    finally:
        libc.setfsuid(0)
        libc.setfsgid(0)


@cache
def _libc() -> Any:
    return ctypes.CDLL(None)
