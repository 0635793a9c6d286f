"""The file below a journal: SQLite's, with a log in front, so that what is done together is written at once."""

import os
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from tropism.errors import ServerError, ValidationError
from tropism.serve.storage.protocol import Entry
from tropism.wire.codec import encode

APPLICATION = 0x54524F50  # "TROP", by which SQLite's tools tell whose file this is
VERSION = 1
LONGEST_LOG = 4096  # entries; then they go where they are found by session
SCHEMA = f"""
begin;
create table sessions(
  number integer primary key,
  key blob unique not null,  -- a digest of the session's id: whoever knows the id may step it
  environment text not null, variant text not null, owner text not null,
  used real not null,        -- seconds since 1970
  begin integer not null,    -- seq of the current episode's reset
  reached integer not null,  -- seq of the first entry after the snapshot
  snapshot blob
);
create table log(number integer primary key, entries text not null);
create table episodes(       -- entries of one session, in pieces
  session integer not null, first integer not null, last integer not null, entries text not null,
  primary key (session, first)
);
create table snapshots(
  session integer not null, id text not null, begin integer not null, length integer not null, snapshot blob not null,
  primary key (session, id)
);
create table replies(
  session integer not null, request_id text not null, reply blob not null,
  primary key (session, request_id)
);
pragma application_id = {APPLICATION};
pragma user_version = {VERSION};
commit;
"""
LOG = "insert into log(entries) values (?)"
INSERT = "insert into episodes values (?, ?, ?, ?)"
PIECES = "select entries from episodes where session = ? and last >= ? and first < ? order by first"
NEEDED = """
select case when exists (select 1 from snapshots where session = number) then 0 else begin end
from sessions where number = ?
"""
USED = "update sessions set used = ? where number = ?"

DAMAGED = (sqlite3.Error, msgspec.DecodeError)  # or full, or gone

Line = tuple[int, int, Entry]  # session, seq, entry
Statement = tuple[str, tuple[Any, ...]]

_lines = msgspec.json.Decoder(list[Line])
_raw = msgspec.json.Decoder(list[tuple[int, int, msgspec.Raw]])


class NotWrittenError(Exception):
    """Why a group was not written, and of which sessions it was."""

    def __init__(self, reason: ServerError, sessions: set[str]):
        super().__init__(reason.message)
        self.reason = reason
        self.sessions = sessions


class Group:
    """What is to be written together, and of which sessions it is."""

    __slots__ = ("lines", "sessions", "statements")

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.statements: list[Statement] = []
        self.sessions: set[str] = set()


class Tables:
    """What is put in is written by the next `commit`: all of it or nothing. Threads take turns by `lock`."""

    def __init__(self, path: Path):
        self.path = path
        self.lock = threading.RLock()
        self._group = Group()
        self._logged = LONGEST_LOG  # perhaps: another process may have left as many
        self._sort_at = LONGEST_LOG
        self._file = _opened(path)

    @property
    def changed(self) -> bool:
        """Whether there is something to commit."""
        return bool(self._group.lines or self._group.statements)

    def put(self, sessions: Iterable[str], statements: Iterable[Statement], lines: Iterable[Line] = ()) -> None:
        with self.lock:
            group = self._group
            group.sessions.update(sessions)
            group.statements.extend(statements)
            group.lines.extend(lines)

    def commit(self) -> None:
        """Write what was put in; where that fails it is dropped, and the error says of which sessions it was."""
        with self.lock:
            group, self._group = self._group, Group()
            try:
                self._write(self._file, group)
            except DAMAGED as error:
                raise NotWrittenError(_refused("written", error), group.sessions) from error

    def _write(self, file: sqlite3.Connection, group: Group) -> None:
        statements = group.statements
        if group.lines:
            statements.append((LOG, (encode(group.lines).decode(),)))
        if len(statements) == 1:
            file.execute(*statements[0])
        elif statements:
            with _whole(file):
                for statement in statements:
                    file.execute(*statement)
        self._logged += len(group.lines)
        if self._logged >= self._sort_at:
            self._sort_at = self._logged + LONGEST_LOG  # should it fail: entries are as safe in the log
            with suppress(*DAMAGED):
                self._sort()

    def ask(self, sql: str, *row: Any) -> list[Any]:
        """What the file says."""
        with self._used("read") as file:
            return file.execute(sql, row).fetchall()

    def lines(self, number: int, begin: int, end: int) -> list[Line]:
        """The entries of a session, once the log is sorted."""
        pieces = self.ask(PIECES, number, begin, end)
        try:
            lines = [line for (entries,) in pieces for line in _lines.decode(entries)]
        except DAMAGED as error:
            raise _refused("read", error) from error
        return [line for line in lines if begin <= line[1] < end]

    def sort(self) -> None:
        """Have every entry where it is found by its session."""
        with self._used("written"):
            self._sort()

    def _sort(self) -> None:
        """Take the entries out of the log that are still needed: most episodes are over by now."""
        if not self._logged:
            return
        file, of_session = self._file, dict[int, list[Any]]()
        for (logged,) in file.execute("select entries from log order by number").fetchall():
            for line in _raw.decode(logged):
                of_session.setdefault(line[0], []).append(line)
        with _whole(file):
            for number, lines in of_session.items():
                needed = file.execute(NEEDED, (number,)).fetchone()
                lines = [] if needed is None else [line for line in lines if line[1] >= needed[0]]
                if lines:
                    file.execute(INSERT, (number, lines[0][1], lines[-1][1], encode(lines).decode()))
                    file.execute(USED, (time.time(), number))
            file.execute("delete from log")
        self._logged, self._sort_at = 0, LONGEST_LOG

    @contextmanager
    def _used(self, what: str) -> Generator[sqlite3.Connection]:
        with self.lock:
            try:
                yield self._file
            except DAMAGED as error:
                raise _refused(what, error) from error

    def to_disk(self) -> None:
        """Return when what was committed survives a loss of power."""
        log = os.open(f"{self.path}-wal", os.O_RDONLY)
        try:
            os.fdatasync(log)
        finally:
            os.close(log)

    def fold(self) -> None:
        """As `to_disk`, by writing all of the log elsewhere: what a disk failed to keep it may not try again."""
        with self._used("written") as file:
            (busy, *_) = file.execute("pragma wal_checkpoint(truncate)").fetchone()
        if busy:
            raise _refused("written", OSError("the journal is in use"))

    def close(self) -> None:
        with self.lock:
            self._file.close()


def _refused(what: str, error: Exception) -> ServerError:
    return ServerError("JOURNAL_ERROR", f"not done: the journal cannot be {what} ({error})")


@contextmanager
def _whole(file: sqlite3.Connection) -> Generator[None]:
    """One transaction."""
    file.execute("begin immediate")
    try:
        yield
        file.execute("commit")
    finally:
        if file.in_transaction:
            file.execute("rollback")


def _opened(path: Path) -> sqlite3.Connection:
    """The file, made where there is none, and locked: it is let go however this process ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)  # what sessions did is nobody else's business
    except OSError as error:
        raise unusable(path, f"a file that can be written ({error.strerror})") from None
    file = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        _prepare(file, path)
    except BaseException as error:
        file.close()
        if not isinstance(error, sqlite3.Error):
            raise
        busy = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
        raise unusable(
            path,
            "one that no other server has open; is one running at this address?" if busy else f"a journal ({error})",
        ) from None
    return file


def _prepare(file: sqlite3.Connection, path: Path) -> None:
    # One connection, and no shared memory: also what spares releases of SQLite before 3.51.3 their lost commits,
    # which two connections are needed for.
    file.execute("pragma locking_mode = exclusive")
    file.execute("pragma page_size = 1024")  # of a file to be made: most commits change a page or two
    file.execute("pragma journal_mode = wal")
    file.execute("pragma wal_autocheckpoint = 4096")  # pages: after a checkpoint the disk is waited for
    file.execute("pragma synchronous = normal")  # a crash of the machine loses the last commits, not the file
    (application,) = file.execute("pragma application_id").fetchone()
    (version,) = file.execute("pragma user_version").fetchone()
    (tables,) = file.execute("select count(*) from sqlite_master").fetchone()
    if not tables:
        file.executescript(SCHEMA)
    elif application != APPLICATION or version != VERSION:
        raise unusable(path, f"a journal of this version ({VERSION}), or a file that is not there yet")


def unusable(path: Path, expected: str) -> ValidationError:
    return ValidationError("journal", str(path), f"{expected}; --journal names another, --durability off none")
