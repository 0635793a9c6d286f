"""The SQLite file of a journal: commits append to a log, which is later sorted into a table by session."""

import logging
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tropism.errors import ServerError, ValidationError
from tropism.serve.storage.protocol import Entry
from tropism.serve.storage.rows import DECODE_ERRORS, damaged_error, decode_row
from tropism.serve.storage.statements import MARK_ALL_DOUBTFUL, MARK_DOUBTFUL, SAVE_FACT, UPDATE_USED, Line, WriteGroup
from tropism.serve.storage.wal import read_wal
from tropism.wire.codec import encode

logger = logging.getLogger("tropism.serve")

APPLICATION = 0x54524F50  # "TROP", which identifies the file to SQLite's tools
VERSION = 2
FURTHER_TABLES = """
create table if not exists facts(name text primary key, value);  -- about the server that last wrote the file
create table if not exists doubtful(session integer primary key);  -- sessions whose last entries may be lost
"""
SCHEMA = f"""
begin;
create table sessions(
  number integer primary key,
  key blob unique not null,
  environment text not null,
  variant text not null,     -- JSON: arguments, and params by name
  owner text not null,
  used real not null,        -- seconds on the server's running clock
  begin integer not null,    -- seq of the current episode's reset
  reached integer not null,  -- seq of the first entry after the snapshot
  snapshot blob
);
create table log(number integer primary key, entries text not null);
create table episodes(       -- entries of one session, in pieces
  session integer not null, first integer not null, last integer not null, entries text not null,
  primary key (session, first)
);
create table notes(          -- snapshots of episodes, and replies that a replay does not reproduce
  number integer primary key,
  session integer not null,
  kind text not null,
  begin integer not null,    -- seq of the reset of its episode
  seq integer not null,      -- of the first entry after it
  entry text not null
);
create index notes_by_session on notes(session);
{FURTHER_TABLES}
pragma application_id = {APPLICATION};
pragma user_version = {VERSION};
commit;
"""
INSERT_LOG = "insert into log(entries) values (?)"
INSERT_EPISODE = "insert into episodes values (?, ?, ?, ?)"
SELECT_NOTES = "select begin, seq, cast(entry as blob) from notes where session = ? order by number"
SELECT_PIECES = (
    "select cast(entries as blob) from episodes where session = ? and last >= ? and first < ? order by first"
)
SELECT_LOG = "select cast(entries as blob) from log order by number"
SELECT_FIRST_NEEDED = """
select case
  when exists (select 1 from notes where session = sessions.number and kind = 'snapshot') then 0 else begin
end
from sessions where number = ?
"""

FILE_ERRORS = (sqlite3.Error, msgspec.DecodeError)  # a damaged, full or missing file


class Note(NamedTuple):
    """A note, the seq of the reset of its episode, and the seq of the first entry after it."""

    begin: int
    seq: int
    entry: Entry


_line_decoder = msgspec.json.Decoder(list[Line])
_entry_decoder = msgspec.json.Decoder(Entry)


class SqliteFile:
    """Thread-safe through `lock`; `log_size` is the number of entries at which the log is sorted."""

    def __init__(self, path: Path, log_size: int):
        self.path = path
        self.lock = threading.RLock()
        self._max_log_size = log_size
        self._log_size = log_size  # an upper bound: an earlier process may have left entries
        self._flush_at = log_size
        wal = read_wal(Path(f"{path}-wal"))
        self._file = _open(path)
        self.discarded_commits = wal.discarded(self._recovered_frames())
        self._clock_offset = self._last_running_time() - time.monotonic()

    def _recovered_frames(self) -> int:
        """The number of frames of the write-ahead log that SQLite recovered."""
        try:
            return self._file.execute("pragma wal_checkpoint(passive)").fetchone()[1]
        except sqlite3.Error:  # a full disk
            return sys.maxsize

    def _last_running_time(self) -> float:
        try:
            rows = self.query("select max(value) from facts where name = 'clock' union select max(used) from sessions")
        except ServerError:  # a damaged file
            return 0.0
        return max((value for (value,) in rows if value is not None), default=0.0)

    def running_time(self) -> float:
        """Seconds that servers have run with this file; unlike the system's clock, it never jumps."""
        return self._clock_offset + time.monotonic()

    def fact(self, name: str) -> Any:
        rows = self.query("select value from facts where name = ?", name)
        return rows[0][0] if rows else None

    def save_facts(self, **facts: Any) -> None:
        group = WriteGroup()
        group.statements += [(SAVE_FACT, fact) for fact in facts.items()]
        self.write(group)

    def is_readable(self) -> bool:
        """Whether the sessions can be read, perhaps from a full disk."""
        try:
            return bool(self.query("select count(*) from sessions"))
        except ServerError:
            return False

    def write(self, group: WriteGroup) -> None:
        """Commit a group; raises a `ServerError` if it cannot be written, and then none of it is."""
        try:
            with self.lock:
                self._write(self._file, group)
        except FILE_ERRORS as error:
            raise _journal_error("written", error) from error

    def _write(self, file: sqlite3.Connection, group: WriteGroup) -> None:
        statements = group.statements
        if group.lines:
            statements.append((INSERT_LOG, (encode(group.lines).decode(),)))
        if len(statements) == 1:
            file.execute(*statements[0])
        elif statements:
            with _transaction(file):
                for statement in statements:
                    file.execute(*statement)
        self._log_size += len(group.lines)
        if self._log_size >= self._flush_at:
            # If this fails, retry later: entries are durable in the log.
            self._flush_at = self._log_size + self._max_log_size
            with suppress(*FILE_ERRORS):
                self._flush_log()

    def query(self, sql: str, *row: Any) -> list[Any]:
        """The rows of a query."""
        with self._connection("read") as file:
            return file.execute(sql, row).fetchall()

    def iterate(self, sql: str) -> Iterator[Any]:
        """The rows of a query, as far as they can be read; then SQLite's error."""
        return iter(self._file.execute(sql))

    def lines(self, number: int, begin: int, end: int) -> list[Line]:
        """The entries of a session."""
        with self._connection("read") as file:
            pieces = file.execute(SELECT_PIECES, (number, begin, end)).fetchall()
            logged = file.execute(SELECT_LOG).fetchall() if self._log_size else []
        try:
            lines = [line for (entries,) in pieces for line in _line_decoder.decode(entries)]
            for (entries,) in logged:
                own = (line for line in decode_row(entries)[0] if line[0] == number)
                lines += [(number, seq, _entry_decoder.decode(raw)) for _, seq, raw in own]
        except DECODE_ERRORS:
            raise damaged_error() from None
        return [line for line in lines if begin <= line[1] < end]

    def notes(self, number: int) -> list[Note]:
        """The notes of a session, in order."""
        rows = self.query(SELECT_NOTES, number)
        try:
            return [Note(begin, seq, _entry_decoder.decode(entry)) for begin, seq, entry in rows]
        except DECODE_ERRORS:
            raise damaged_error() from None

    def flush_log(self) -> None:
        """Move entries from the log to the table of episodes."""
        with self._connection("written"):
            self._flush_log()

    def _flush_log(self) -> None:
        """Drop the entries of superseded episodes; move the rest."""
        if not self._log_size:
            return
        file, by_session, damaged = self._file, dict[int, list[Any]](), set[int | None]()
        for (logged,) in file.execute(SELECT_LOG).fetchall():
            lines, damaged_here = decode_row(logged)
            damaged |= damaged_here
            for line in lines:
                by_session.setdefault(line[0], []).append(line)
        with _transaction(file):
            self._mark_doubtful(damaged)
            for number, lines in by_session.items():
                first_needed = file.execute(SELECT_FIRST_NEEDED, (number,)).fetchone()
                lines = [] if first_needed is None else [line for line in lines if line[1] >= first_needed[0]]
                if lines:
                    file.execute(INSERT_EPISODE, (number, lines[0][1], lines[-1][1], encode(lines).decode()))
                    file.execute(UPDATE_USED, (self.running_time(), number))
            file.execute("delete from log")
        self._log_size, self._flush_at = 0, self._max_log_size

    def _mark_doubtful(self, numbers: set[int | None]) -> None:
        """The sessions of damaged entries; None: of unknown ones."""
        if not numbers:
            return
        known = [number for number in numbers if number is not None]
        names = ", ".join(map(str, known)) or "unknown"
        logger.error("the journal is damaged: entries of the sessions numbered %s were discarded", names)
        for number in known:
            self._file.execute(MARK_DOUBTFUL, (number,))
        if None in numbers:
            self._file.execute(MARK_ALL_DOUBTFUL)

    @contextmanager
    def _connection(self, what: str) -> Generator[sqlite3.Connection]:
        with self.lock:
            try:
                yield self._file
            except FILE_ERRORS as error:
                raise _journal_error(what, error) from error

    def sync_wal(self) -> None:
        """fsync the write-ahead log: commits then survive a power failure."""
        log = os.open(f"{self.path}-wal", os.O_RDONLY)
        try:
            os.fdatasync(log)
        finally:
            os.close(log)

    def checkpoint_wal(self) -> None:
        """As `sync_wal`, after a failed fsync: that may have discarded dirty pages, so checkpoint the whole WAL."""
        with self._connection("written") as file:
            (busy, *_) = file.execute("pragma wal_checkpoint(truncate)").fetchone()
        if busy:
            raise _journal_error("written", OSError("the journal is in use"))

    def close(self) -> None:
        with self.lock:
            self._file.close()


def _journal_error(what: str, error: Exception) -> ServerError:
    return ServerError("JOURNAL_ERROR", f"not applied: the journal cannot be {what} ({error})")


@contextmanager
def _transaction(file: sqlite3.Connection) -> Generator[None]:
    """One transaction."""
    file.execute("begin immediate")
    try:
        yield
        file.execute("commit")
    finally:
        if file.in_transaction:
            file.execute("rollback")


def _open(path: Path) -> sqlite3.Connection:
    """Open or create the file, and lock it; the lock ends with the process."""
    if path.is_dir():
        raise unusable_journal(path, "a file; this is a directory")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)  # readable by its owner only
    except OSError as error:
        raise unusable_journal(path, f"a file that can be written ({error.strerror})") from None
    file = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        _prepare(file, path)
    except BaseException as error:
        file.close()
        if not isinstance(error, sqlite3.Error):
            raise
        busy = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
        raise unusable_journal(
            path,
            "one that no other server has open; is one running at this address?" if busy else f"a journal ({error})",
        ) from None
    return file


def _prepare(file: sqlite3.Connection, path: Path) -> None:
    # One connection and no shared memory. This also avoids the lost commits of SQLite before 3.51.3, which take two
    # connections.
    file.execute("pragma locking_mode = exclusive")
    file.execute("pragma page_size = 1024")  # for a new file: most commits change a page or two
    file.execute("pragma journal_mode = wal")
    file.execute("pragma wal_autocheckpoint = 4096")  # pages; each checkpoint waits for the disk
    file.execute("pragma secure_delete = on")  # the data of closed sessions is overwritten
    file.execute("pragma synchronous = normal")  # a power failure loses the last commits, not the file
    (application,) = file.execute("pragma application_id").fetchone()
    (version,) = file.execute("pragma user_version").fetchone()
    (tables,) = file.execute("select count(*) from sqlite_master").fetchone()
    if not tables:
        file.executescript(SCHEMA)
    elif application != APPLICATION:
        raise unusable_journal(path, "a journal, or a path without a file; it is the database of another program")
    elif version != VERSION:
        raise unusable_journal(
            path,
            f"a journal of version {VERSION}; this one has version {version}, whose sessions this release cannot "
            "resume: finish them with the release that wrote it, or delete the file",
        )
    else:
        file.executescript(FURTHER_TABLES)


def unusable_journal(path: Path, expected: str) -> ValidationError:
    return ValidationError(
        "journal", str(path), f"{expected}; choose another with --journal, or none with --durability off"
    )
