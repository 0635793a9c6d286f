"""The files of a journal: an append-only log, which is later sorted into a table of an SQLite file by session."""

import logging
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from tropism.errors import ServerError
from tropism.serve.storage import statements as sql
from tropism.serve.storage.append_log import AppendLog
from tropism.serve.storage.recovery import Note, decode_entry
from tropism.serve.storage.rows import DECODE_ERRORS, damaged_error, decode_row, split_lines
from tropism.serve.storage.schema import open_database, unusable_journal
from tropism.serve.storage.statements import Line, Statement, WriteGroup
from tropism.serve.storage.wal import read_commits
from tropism.wire.codec import encode

logger = logging.getLogger("tropism.serve")

LOG_BYTES = 2**22  # moving them takes some tens of milliseconds
INSERT_LOG = "insert into log(entries) values (?)"
INSERT_EPISODE = "insert into episodes values (?, ?, ?, ?)"
SELECT_NOTES = "select begin, seq, cast(entry as blob) from notes where session = ? order by number"
SELECT_PIECE = """
select first, cast(entries as blob) from episodes
where session = ? and last >= ? and first > ? and first < ? order by first limit 1
"""
SELECT_LOG = "select cast(entries as blob) from log order by number"
SELECT_FIRST_NEEDED = """
select case
  when exists (select 1 from notes where session = sessions.number and kind = 'snapshot') then 0 else begin
end
from sessions where number = ?
"""

SHRINK_PAGES = 4096  # returned at once
DELETION_SECONDS = 0.002  # in one transaction; a single row may take longer
FILE_ERRORS = (sqlite3.Error, msgspec.DecodeError, OSError)  # a damaged, full or missing file


_line_decoder = msgspec.json.Decoder(list[Line])


class SqliteFile:
    """Thread-safe through `lock`; the log is sorted when it has `log_size` entries or `LOG_BYTES`.

    Entries alone are appended to the log, which takes a fraction of the time of a commit. Entries that are committed
    with other changes are in a table with them.
    """

    def __init__(self, path: Path, log_size: int):
        self.path = path
        self.lock = threading.RLock()
        self._max_log_size = log_size
        self._log_size, self._log_bytes = log_size, 0  # upper bound: an earlier process may have left entries
        self._flush_at = log_size
        commits = read_commits(Path(f"{path}-wal"))
        self._file = open_database(path)
        try:
            ((mark, moved),) = self._file.execute("select mark, moved from append_log").fetchall()
            self._log = AppendLog(path.with_name(f"{path.name}-log"), mark, moved)
        except FILE_ERRORS as error:
            self._file.close()
            raise unusable_journal(path, f"one whose log can be read and written ({error})") from None
        self._wal_synced = self._log_synced = False
        recovered = self._recovered_frames()
        self.discarded_commits = sum(number > recovered for number in commits) + self._log.missing_records
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
        self.write(WriteGroup([(sql.SAVE_FACT, fact) for fact in facts.items()]))

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
        entries = encode(group.lines) if group.lines else b""
        if entries and not group.statements:
            self._log.append(entries)
            self._log_synced = False
        else:
            self._commit(file, group.statements, entries)
        self._log_size += len(group.lines)
        self._log_bytes += len(entries)
        if self._log_size >= self._flush_at or self._log_bytes >= LOG_BYTES:
            # If this fails, retry later: entries are durable in the log.
            self._flush_at = self._log_size + self._max_log_size
            with suppress(*FILE_ERRORS, ServerError):
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

    def query(self, statement: str, *row: Any) -> list[Any]:
        """The rows of a query."""
        with self._connection("read") as file:
            return file.execute(statement, row).fetchall()

    def iterate(self, statement: str) -> Iterator[Any]:
        """The rows of a query, as far as they can be read; then SQLite's error."""
        return iter(self._file.execute(statement))

    def lines(self, number: int, begin: int, end: int) -> list[Line]:
        """The entries of a session, which does not change meanwhile.

        The lock is held for one piece at a time, so that the entries of other sessions can be written between them.
        """
        lines, logged, last = list[Line](), list[bytes](), -1
        try:
            while True:
                with self._connection("read") as file:
                    piece = file.execute(SELECT_PIECE, (number, begin, last, end)).fetchone()
                    if piece is None:  # entries that moved from the log meanwhile have been read
                        logged = self.logged_rows() if self._log_size else []
                        break
                last = piece[0]
                lines += _line_decoder.decode(piece[1])
            for entries in logged:
                own = (line for line in decode_row(entries)[0] if line[0] == number)
                lines += [(number, seq, decode_entry(raw)) for _, seq, raw in own]
        except DECODE_ERRORS:
            raise damaged_error() from None
        return [line for line in lines if begin <= line[1] < end]

    def notes(self, number: int) -> list[Note]:
        """The notes of a session, in order."""
        rows = self.query(SELECT_NOTES, number)
        try:
            return [Note(begin, seq, decode_entry(entry)) for begin, seq, entry in rows]
        except DECODE_ERRORS:
            raise damaged_error() from None

    def logged_rows(self) -> list[bytes]:
        """Rows of entries that are not sorted yet, from both logs."""
        with self._connection("read") as file:
            return [entries for (entries,) in file.execute(SELECT_LOG)] + self.pending_rows()

    def pending_rows(self) -> list[bytes]:
        return list(self._log.pending)

    def flush_log(self) -> None:
        """Move entries from the log to the table of episodes."""
        with self._connection("written"):
            self._flush_log()

    def _flush_log(self) -> None:
        """Drop the entries of superseded episodes; move the rest."""
        if not self._log_size:
            return
        file, by_session, damaged = self._file, dict[int, list[Any]](), set[int | None]()
        for entries in self.logged_rows():
            lines, damaged_here = decode_row(entries)
            damaged |= damaged_here
            for line in lines:
                by_session.setdefault(line[0], []).append(line)
        with _transaction(file):
            self._mark_doubtful(damaged)
            for number, lines in by_session.items():
                lines.sort(key=itemgetter(1))
                first_needed = file.execute(SELECT_FIRST_NEEDED, (number,)).fetchone()
                lines = [] if first_needed is None else [line for line in lines if line[1] >= first_needed[0]]
                for piece in split_lines(lines):
                    file.execute(INSERT_EPISODE, (number, piece[0][1], piece[-1][1], encode(piece).decode()))
                if lines:
                    file.execute(sql.UPDATE_USED, (self.running_time(), number))
            file.execute("delete from log")
            file.execute("update append_log set moved = ?", (self._log.last,))
        self._wal_synced, moved = False, bool(self._log.pending)
        self._log.pending.clear()
        self._log_size, self._log_bytes, self._flush_at = 0, 0, self._max_log_size
        if moved:
            self.sync_wal()  # before the log is truncated, or a power failure could lose what was synced
            self._log.truncate()
        if discarded := file.execute(f"{sql.SELECT_DISCARDED} limit 1").fetchall():
            self.delete_some(discarded)
        self.shrink()

    def discarded_sessions(self) -> list[tuple[int, int]]:
        """The numbers of sessions with entries to delete, none of which is in a log, and the seqs to delete up to."""
        with self._connection("written") as file:
            self._flush_log()
            return file.execute(sql.SELECT_DISCARDED).fetchall()

    def delete_some(self, discarded: list[tuple[int, int]]) -> None:
        """Delete discarded entries for a while, and notes of closed sessions; sessions without any leave the list."""
        deadline = time.monotonic() + DELETION_SECONDS
        with self._connection("written") as file, _transaction(file):
            self._wal_synced = False
            while discarded and time.monotonic() < deadline:
                number, before = discarded[-1]
                notes = file.execute(sql.DELETE_NOTE, (number,)).rowcount
                if not notes and not file.execute(sql.DELETE_OLD_PIECE, (number, before)).rowcount:
                    file.execute(sql.DELETE_DISCARDED, (number, before))
                    discarded.pop()

    def shrink(self) -> bool:
        """Return some free pages to the file system, if most of the file is free; returns whether it was."""
        with self._connection("written") as file:
            ((free,), (pages,)) = (
                file.execute(f"pragma {name}").fetchone() for name in ("freelist_count", "page_count")
            )
            is_mostly_free = free > SHRINK_PAGES and 2 * free > pages
            if is_mostly_free:
                file.executescript(f"pragma incremental_vacuum({SHRINK_PAGES})")  # `execute` would free one page
            return is_mostly_free

    def _mark_doubtful(self, numbers: set[int | None]) -> None:
        """The sessions of damaged entries; None: of unknown ones."""
        if not numbers:
            return
        known = [number for number in numbers if number is not None]
        names = ", ".join(map(str, known)) or "unknown"
        logger.error("the journal is damaged: entries of the sessions numbered %s were discarded", names)
        for number in known:
            self._file.execute(sql.MARK_DOUBTFUL, (number,))
        if None in numbers:
            self._file.execute(sql.MARK_ALL_DOUBTFUL)

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
def _transaction(file: sqlite3.Connection) -> Generator[sqlite3.Connection]:
    """One transaction."""
    file.execute("begin immediate")
    try:
        yield file
        file.execute("commit")
    finally:
        if file.in_transaction:
            file.execute("rollback")
