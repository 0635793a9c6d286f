"""The journal: a durable store of sessions in one file."""

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Literal

from tropism.errors import ServerError
from tropism.serve.storage.memory import MemoryStore
from tropism.serve.storage.protocol import (
    MAX_ENTRIES,
    DurableCallback,
    Entry,
    LostCallback,
    RecoveryPoint,
    SavedSnapshot,
    SessionRecord,
)
from tropism.serve.storage.sqlite import UPDATE_USED, NotWrittenError, SqliteLog, Statement, unusable_journal

Durability = Literal["process", "power"]

logger = logging.getLogger("tropism.serve")

KEY_BYTES = 16
FORGET_AFTER = 30 * 86_400.0  # seconds
SWEEP_INTERVAL = 3600.0  # seconds between sweeps for expired sessions

INSERT_SESSION = "insert into sessions values (?, ?, ?, ?, ?, ?, 0, 0, null)"
BEGIN_EPISODE = "update sessions set begin = ?, reached = ?, snapshot = null, used = ? where number = ?"
SAVE_CHECKPOINT = "update sessions set reached = ?, snapshot = ?, used = ? where number = ?"
DELETE_OLD_EPISODES = """
delete from episodes where session = ? and last < ? and not exists (
  select 1 from snapshots where snapshots.session = episodes.session and begin <= last and first < begin + length
)
"""
INSERT_REPLY = "insert or replace into replies values (?, ?, ?)"
INSERT_SNAPSHOT = "insert into snapshots values (?, ?, ?, ?, ?)"
SELECT_SNAPSHOTS = "select id, begin, length, snapshot from snapshots where session = ? order by length desc"
SELECT_SESSION = """
select number, begin, reached, snapshot, (select max(last) from episodes where session = number)
from sessions where key = ?
"""
DELETE_BETWEEN = "delete from episodes where session = ? and first >= ? and last < ?"
SESSION_TABLES = (("episodes", "session"), ("snapshots", "session"), ("replies", "session"), ("sessions", "number"))


class JournalCursor:
    """Where a session is in the file: `begin` is the seq of its episode's reset, `end` the seq of its next entry."""

    __slots__ = ("begin", "end", "number")

    def __init__(self, number: int, begin: int, end: int):
        self.number = number
        self.begin = begin
        self.end = end


def default_path(host: str, port: int) -> Path:
    """The default journal of the server at this address."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "tropism" / f"{host.replace(':', '_')}-{port}.journal"


class Journal:
    """A store in one file, which only one server can have open.

    Entries from one event-loop iteration are committed together. Live sessions are held in memory as well; the file
    is read only when a session is resumed.
    """

    def __init__(self, path: str | Path, durability: Durability = "process", forget_after: float = FORGET_AFTER):
        """Sessions unused for `forget_after` seconds are deleted."""
        self.path = Path(path)
        self.on_lost: LostCallback = lambda _: None
        self._power = durability == "power"
        self._forget_after = forget_after
        self._memory = MemoryStore()
        self._cursors: dict[str, JournalCursor] = {}
        self._uncommitted: list[DurableCallback] = []  # called after the next commit
        self._unsynced: list[DurableCallback] = []  # called after the next fsync
        self._needs_sync = False
        self._commit_handle: asyncio.Handle | None = None
        self._sync_task: asyncio.Task[None] | None = None
        self._log = SqliteLog(self.path)
        self._sync_disk = self._log.sync_wal
        try:
            self._log.flush_log()
            self._sweep()
            ((last,),) = self._log.query("select ifnull(max(number), 0) from sessions")
            self._numbers = count(last + 1)
        except ServerError as error:
            self._log.close()
            raise unusable_journal(self.path, f"one that is not damaged ({error.message})") from None

    def open(self, session: str, record: SessionRecord) -> None:
        self._memory.open(session, record)

    def append(
        self, session: str, entries: Sequence[Entry], snapshot: bytes | None = None, parent: str | None = None, /
    ) -> None:
        with self._log.lock:
            if entries[0].kind == "reset":
                cursor, statements = self._begin_episode(session)
            else:
                cursor, statements = self._cursor(session), []
            lines = [(cursor.number, seq, entry) for seq, entry in enumerate(entries, cursor.end)]
            cursor.end += len(lines)
            if snapshot is not None:
                statements += _checkpoint_statements(cursor, snapshot)
            self._log.put((session,) if parent is None else (session, parent), statements, lines)
            self._memory.append(session, entries)

    def _cursor(self, session: str) -> JournalCursor:
        if session not in self._cursors:
            raise _lost_error()
        return self._cursors[session]

    def _begin_episode(self, session: str) -> tuple[JournalCursor, list[Statement]]:
        """Begin another episode; deletes the previous one, except for entries that led to snapshots."""
        previous = self._cursors.get(session)
        if previous is not None:
            cursor = JournalCursor(previous.number, previous.end, previous.end)
            statements: list[Statement] = [
                (DELETE_OLD_EPISODES, (cursor.number, cursor.begin)),
                ("delete from replies where session = ?", (cursor.number,)),
                (BEGIN_EPISODE, (cursor.begin, cursor.begin, time.time(), cursor.number)),
            ]
        else:
            record = self._memory.lookup(session)
            if record is None:
                raise _lost_error()
            cursor = JournalCursor(next(self._numbers), 0, 0)
            statements = [(INSERT_SESSION, (cursor.number, _key(session), *record, time.time()))]
        self._cursors[session] = cursor
        return cursor, statements

    def episode(self, session: str) -> list[Entry]:
        return self._memory.episode(session)

    def cache_reply(self, session: str, request_id: str, reply: bytes) -> None:
        self._memory.cache_reply(session, request_id, reply)

    def save_reply(self, session: str, request_id: str, reply: bytes) -> None:
        if (cursor := self._cursors.get(session)) is not None:  # None before the first reset
            self._log.put((session,), [(INSERT_REPLY, (cursor.number, request_id, reply))])
        self.cache_reply(session, request_id, reply)

    def reply(self, session: str, request_id: str) -> bytes | None:
        return self._memory.reply(session, request_id)

    def reply_was_dropped(self, session: str, request_id: str) -> bool:
        return self._memory.reply_was_dropped(session, request_id)

    def save_snapshot(self, session: str, snapshot_id: str, snapshot: bytes) -> None:
        cursor = self._cursor(session)
        length = min(cursor.end - cursor.begin, MAX_ENTRIES)
        self._log.put((session,), [(INSERT_SNAPSHOT, (cursor.number, snapshot_id, cursor.begin, length, snapshot))])
        self._memory.save_snapshot(session, snapshot_id, snapshot)

    def snapshots(self, session: str) -> dict[str, SavedSnapshot]:
        return self._memory.snapshots(session)

    def evict(self, session: str, snapshot: bytes) -> None:
        self._log.put((session,), _checkpoint_statements(self._cursor(session), snapshot))
        self._commit()
        self.release(session)
        if time.time() > self._last_sweep + SWEEP_INTERVAL:
            self._sweep()

    def lookup(self, session: str) -> SessionRecord | None:
        self._commit()
        rows = self._log.query("select environment, variant, owner from sessions where key = ?", _key(session))
        return SessionRecord(*rows[0]) if rows else None

    def load(self, session: str) -> RecoveryPoint | None:
        self._log.flush_log()
        rows = self._log.query(SELECT_SESSION, _key(session))
        if not rows:
            return None
        ((number, begin, reached, snapshot, last),) = rows
        if last is None:
            raise ServerError(
                "JOURNAL_ERROR", "the journal is damaged: it has this session, but no entries of its episode"
            )
        cursor, lines = JournalCursor(number, begin, last + 1), self._log.lines(number, begin, last + 1)
        preceding = [entry for _, seq, entry in lines if seq < reached]
        self._memory.append(session, [entry for _, _, entry in lines])
        self._load_memory(session, cursor, preceding)
        self._log.put((), [(UPDATE_USED, (time.time(), number))])
        return RecoveryPoint(snapshot, [entry for _, seq, entry in lines if seq >= reached], preceding[-1:])

    def _load_memory(self, session: str, cursor: JournalCursor, preceding: list[Entry]) -> None:
        """Load replies and snapshots into memory; replies that a replay reproduces are cached by it."""
        number, memory, query = cursor.number, self._memory, self._log.query
        for entry in preceding:
            if entry.request is not None:
                memory.mark_dropped(session, entry.request.request_id)
        for request_id, reply in query("select request_id, reply from replies where session = ?", number):
            memory.cache_reply(session, request_id, reply)
        episodes = {cursor.begin: memory.episode(session)}
        for id, begin, length, snapshot in query(SELECT_SNAPSHOTS, number):  # the longest first
            if begin not in episodes:
                episodes[begin] = [entry for _, _, entry in self._log.lines(number, begin, begin + length)]
            memory.add_snapshot(session, id, SavedSnapshot(snapshot, episodes[begin], length))
        self._cursors[session] = cursor

    def release(self, session: str) -> None:
        with self._log.lock:
            self._cursors.pop(session, None)
            self._memory.forget(session)

    def forget(self, session: str) -> None:
        with self._log.lock:
            cursor = self._cursors.get(session)
            found = self._log.query("select number from sessions where key = ?", _key(session))
            for (number,) in found if cursor is None else [(cursor.number,)]:
                self._log.put((session,), _delete_statements(number))
            self.release(session)

    def _sweep(self) -> None:
        """Delete expired sessions."""
        self._last_sweep = time.time()
        live = {cursor.number for cursor in self._cursors.values()}
        for (number,) in self._log.query(
            "select number from sessions where used < ?", self._last_sweep - self._forget_after
        ):
            if number not in live:
                self._log.put((), _delete_statements(number))
        self._commit()

    def when_durable(self, callback: DurableCallback) -> None:
        if self._commit_handle is None:
            if not self._log.has_changes and not self._needs_sync and self._sync_task is None:
                callback(None)
                return
            self._commit_handle = asyncio.get_running_loop().call_soon(self._commit_batch)
        self._uncommitted.append(callback)

    def _commit_batch(self) -> None:
        """Commit the entries of this event-loop iteration, and notify their callbacks."""
        self._commit_handle = None
        try:
            self._commit()
        except ServerError:  # the callbacks have been notified
            return
        waiting, self._uncommitted = self._uncommitted, []
        if not self._power:
            _notify(waiting, None)
            return
        self._unsynced += waiting
        if self._sync_task is None:
            self._sync_task = asyncio.ensure_future(self._sync())

    def _commit(self) -> None:
        """Commit pending writes; if that fails, their sessions are lost."""
        try:
            with self._log.lock:
                self._needs_sync |= self._power and self._log.has_changes
                self._write()
        except NotWrittenError as failure:
            waiting, self._uncommitted = self._uncommitted, []
            for session in failure.sessions:
                self.on_lost(session)
            _notify(waiting, failure.reason)
            raise failure.reason from failure

    def _write(self) -> None:
        try:
            self._log.commit()
        except NotWrittenError as failure:
            for session in failure.sessions:
                self.release(session)  # under the lock, so that no entry is appended after the missing ones
            raise

    async def _sync(self) -> None:
        """Keep syncing while callers wait; callers that arrive during an fsync share the next one."""
        try:
            while self._unsynced:
                waiting, self._unsynced = self._unsynced, []
                self._needs_sync, error = False, None
                try:
                    await asyncio.to_thread(self._sync_disk)
                    self._sync_disk = self._log.sync_wal
                except (OSError, ServerError) as failure:
                    self._needs_sync, self._sync_disk = True, self._log.checkpoint_wal
                    message = f"applied, but perhaps not on the disk ({failure}); repeat it with its request_id"
                    error = ServerError("JOURNAL_ERROR", message)
                _notify(waiting, error)
        finally:
            self._sync_task = None

    def close(self) -> None:
        try:
            self._commit()
        except ServerError as error:
            logger.error("the last entries, which were not acknowledged: %s", error.message)
        self._log.close()


def _checkpoint_statements(cursor: JournalCursor, snapshot: bytes) -> list[Statement]:
    """Save a snapshot to replay from; deletes entries that neither a replay nor the history needs."""
    statements: list[Statement] = [(SAVE_CHECKPOINT, (cursor.end, snapshot, time.time(), cursor.number))]
    if cursor.end > (history_end := cursor.begin + MAX_ENTRIES):
        statements.append((DELETE_BETWEEN, (cursor.number, history_end, cursor.end - 1)))
    return statements


def _delete_statements(number: int) -> list[Statement]:
    return [(f"delete from {table} where {column} = ?", (number,)) for table, column in SESSION_TABLES]


def _lost_error() -> ServerError:
    return ServerError("JOURNAL_ERROR", "not applied: earlier entries of this session could not be written")


def _notify(waiting: list[DurableCallback], error: ServerError | None) -> None:
    for callback in waiting:
        callback(error)


def _key(session: str) -> bytes:
    """The file stores only a digest of a session's id, because the id permits stepping the session."""
    return blake2b(session.encode(), digest_size=KEY_BYTES).digest()
