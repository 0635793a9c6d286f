"""The files of a journal: an append-only log, which is later sorted into a table of an SQLite file by session."""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from tropism.errors import ServerError, ValidationError
from tropism.serve.storage.append_log import AppendLog
from tropism.serve.storage.protocol import Entry, Ticket
from tropism.serve.storage.recovery import Note, decode_entry
from tropism.wire.codec import encode

APPLICATION = 0x54524F50  # "TROP", which identifies the file to SQLite's tools
VERSION = 2
LOG_BYTES = 2**22  # moving them takes some tens of milliseconds

logger = logging.getLogger("tropism.serve")
SCHEMA = f"""
begin;
create table sessions(
  number integer primary key,
  key blob unique not null,
  environment text not null,
  variant text not null,     -- JSON: arguments, and params by name
  owner text not null,
  used real not null,        -- seconds since 1970
  begin integer not null,    -- seq of the current episode's reset
  reached integer not null,  -- seq of the first entry after the snapshot
  snapshot blob
);
create table log(number integer primary key, entries text not null);  -- entries committed with other changes
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
pragma application_id = {APPLICATION};
pragma user_version = {VERSION};
commit;
"""
# Which records are this journal's, and the last one moved to the table of episodes. The first journals have no log.
CREATE_LOG = """
begin;
create table if not exists append_log(mark blob not null, moved integer not null);
insert into append_log select randomblob(8), 0 where not exists (select 1 from append_log);
commit;
"""
INSERT_LOG = "insert into log(entries) values (?)"
INSERT_EPISODE = "insert into episodes values (?, ?, ?, ?)"
SELECT_NOTES = "select begin, seq, entry from notes where session = ? order by number"
SELECT_PIECES = "select entries from episodes where session = ? and last >= ? and first < ? order by first"
SELECT_FIRST_NEEDED = """
select case
  when exists (select 1 from notes where session = sessions.number and kind = 'snapshot') then 0 else begin
end
from sessions where number = ?
"""
UPDATE_USED = "update sessions set used = ? where number = ?"

SHRINK_PAGES = 4096  # returned at once
WAL_BYTES = 2**23  # of the write-ahead log after a checkpoint
FILE_ERRORS = (sqlite3.Error, msgspec.DecodeError, OSError)  # a damaged, full or missing file


Line = tuple[int, int, Entry]  # session, seq, entry
Statement = tuple[str, tuple[Any, ...]]

_line_decoder = msgspec.json.Decoder(list[Line])
_raw_decoder = msgspec.json.Decoder(list[tuple[int, int, msgspec.Raw]])


class WriteGroup(Ticket):
    """Writes to commit together, and the keys of their sessions."""

    __slots__ = ("keys", "lines", "statements")

    def __init__(self) -> None:
        super().__init__(pending=True)
        self.lines: list[Line] = []
        self.statements: list[Statement] = []
        self.keys: set[bytes] = set()

    @property
    def empty(self) -> bool:
        return not self.lines and not self.statements


class SqliteFile:
    """Thread-safe through `lock`; the log is sorted when it has `log_size` entries or `log_bytes`.

    Entries alone are appended to the log, which takes a fraction of the time of a commit. Entries that are committed
    with other changes are in a table with them.
    """

    def __init__(self, path: Path, log_size: int, log_bytes: int = LOG_BYTES):
        self.path = path
        self.lock = threading.RLock()
        self._max_log_size, self._max_log_bytes = log_size, log_bytes
        self._log_size, self._log_bytes = log_size, 0  # upper bound: an earlier process may have left entries
        self._flush_at = log_size
        self._file = _open(path)
        try:
            ((mark, moved),) = self._file.execute("select mark, moved from append_log").fetchall()
            self._log = AppendLog(path.with_name(f"{path.name}-log"), mark, moved)
        except FILE_ERRORS as error:
            self._file.close()
            raise unusable_journal(path, f"one whose log can be read and written ({error})") from None
        self._wal_synced = self._log_synced = False
        if self._log.lost_bytes:
            logger.warning("%s: %d bytes of the log are damaged or incomplete", path, self._log.lost_bytes)

    def write(self, group: WriteGroup) -> None:
        """Commit a group; raises a `ServerError` if it cannot be written, and then none of it is."""
        try:
            with self.lock:
                self._write(self._file, group)
        except FILE_ERRORS as error:
            raise _journal_error("written", error) from error

    def _write(self, file: sqlite3.Connection, group: WriteGroup) -> None:
        entries = encode(group.lines) if group.lines else b""
        if entries and not group.statements:
            self._log.append(entries)
            self._log_synced = False
        else:
            self._commit(file, group.statements, entries)
        self._log_size += len(group.lines)
        self._log_bytes += len(entries)
        if self._log_size >= self._flush_at or self._log_bytes >= self._max_log_bytes:
            # If this fails, retry later: entries are durable in the log.
            self._flush_at = self._log_size + self._max_log_size
            with suppress(*FILE_ERRORS):
                self._flush_log()

    def _commit(self, file: sqlite3.Connection, statements: list[Statement], entries: bytes) -> None:
        if entries:
            statements.append((INSERT_LOG, (entries.decode(),)))
        if len(statements) == 1:
            file.execute(*statements[0])
        elif statements:
            with _transaction(file):
                for statement in statements:
                    file.execute(*statement)
        self._wal_synced = False

    def query(self, sql: str, *row: Any) -> list[Any]:
        """The rows of a query."""
        with self._connection("read") as file:
            return file.execute(sql, row).fetchall()

    def lines(self, number: int, begin: int, end: int) -> list[Line]:
        """The entries of a session; call `flush_log` first."""
        with self._connection("read") as file:
            pieces = file.execute(SELECT_PIECES, (number, begin, end)).fetchall()
            lines = [line for (entries,) in pieces for line in _line_decoder.decode(entries)]
        return [line for line in lines if begin <= line[1] < end]

    def notes(self, number: int) -> list[Note]:
        """The notes of a session, in order."""
        with self._connection("read") as file:
            rows = file.execute(SELECT_NOTES, (number,)).fetchall()
            return [Note(begin, seq, decode_entry(entry)) for begin, seq, entry in rows]

    def flush_log(self) -> None:
        """Move entries from the log to the table of episodes."""
        with self._connection("written"):
            self._flush_log()

    def _flush_log(self) -> None:
        """Drop the entries of superseded episodes; move the rest."""
        if not self._log_size:
            return
        file, by_session = self._file, dict[int, list[Any]]()
        logged = [entries for (entries,) in file.execute("select entries from log order by number")]
        for entries in (*logged, *self._log.pending):
            for line in _raw_decoder.decode(entries):
                by_session.setdefault(line[0], []).append(line)
        with _transaction(file):
            for number, lines in by_session.items():
                lines.sort(key=itemgetter(1))
                first_needed = file.execute(SELECT_FIRST_NEEDED, (number,)).fetchone()
                lines = [] if first_needed is None else [line for line in lines if line[1] >= first_needed[0]]
                if lines:
                    file.execute(INSERT_EPISODE, (number, lines[0][1], lines[-1][1], encode(lines).decode()))
                    file.execute(UPDATE_USED, (time.time(), number))
            file.execute("delete from log")
            file.execute("update append_log set moved = ?", (self._log.last,))
        self._wal_synced, moved = False, bool(self._log.pending)
        self._log.pending.clear()
        self._log_size, self._log_bytes, self._flush_at = 0, 0, self._max_log_size
        if moved:
            self.sync_wal()  # before the log is truncated, or a power failure could lose what was synced
            self._log.truncate()
        self._shrink()

    def _shrink(self) -> None:
        """Return some free pages to the file system, if most of the file is free."""
        ((free,), (pages,)) = (
            self._file.execute(f"pragma {name}").fetchone() for name in ("freelist_count", "page_count")
        )
        if free > SHRINK_PAGES and 2 * free > pages:
            self._file.executescript(f"pragma incremental_vacuum({SHRINK_PAGES})")  # `execute` would free one page

    @contextmanager
    def _connection(self, what: str) -> Generator[sqlite3.Connection]:
        with self.lock:
            try:
                yield self._file
            except FILE_ERRORS as error:
                raise _journal_error(what, error) from error

    def sync(self) -> None:
        """fsync what was written: it then survives a power failure."""
        if not self._log_synced:
            self._log_synced = True
            self._log.sync()
        if not self._wal_synced:
            self._wal_synced = True
            self.sync_wal()

    def sync_wal(self) -> None:
        """fsync SQLite's write-ahead log."""
        log = os.open(f"{self.path}-wal", os.O_RDONLY)
        try:
            os.fdatasync(log)
        finally:
            os.close(log)

    def sync_all(self) -> None:
        """As `sync`, after a failed fsync: that may have discarded dirty pages, so write everything again."""
        with self._connection("written") as file:
            self._flush_log()
            (busy, *_) = file.execute("pragma wal_checkpoint(truncate)").fetchone()
        if busy:
            raise _journal_error("written", OSError("the journal is in use"))

    def close(self) -> None:
        with self.lock:
            self._file.close()
            self._log.close()


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
    file.execute("pragma auto_vacuum = incremental")  # for a new file: it can shrink
    file.execute("pragma journal_mode = wal")
    file.execute(f"pragma journal_size_limit = {WAL_BYTES}")
    file.execute("pragma wal_autocheckpoint = 4096")  # pages; each checkpoint waits for the disk
    file.execute("pragma synchronous = normal")  # a power failure loses the last commits, not the file
    (application,) = file.execute("pragma application_id").fetchone()
    (version,) = file.execute("pragma user_version").fetchone()
    (tables,) = file.execute("select count(*) from sqlite_master").fetchone()
    if not tables:
        file.executescript(SCHEMA)
        application, version = APPLICATION, VERSION
    if application != APPLICATION:
        raise unusable_journal(path, "a journal, or a path without a file; it is the database of another program")
    if version != VERSION:
        raise unusable_journal(
            path,
            f"a journal of version {VERSION}; this one has version {version}, whose sessions this release cannot "
            "resume: finish them with the release that wrote it, or delete the file",
        )
    file.executescript(CREATE_LOG)


def unusable_journal(path: Path, expected: str) -> ValidationError:
    return ValidationError(
        "journal", str(path), f"{expected}; choose another with --journal, or none with --durability off"
    )
