"""A journal in one SQLite file."""

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Literal

from tropism.errors import ServerError
from tropism.serve.storage.protocol import (
    LEASE_SECONDS,
    MAX_ENTRIES,
    NOTES,
    Claim,
    DurableCallback,
    Entry,
    Journal,
    RecoveryPoint,
    SessionRecord,
    Ticket,
    leased_error,
    revoked_error,
)
from tropism.serve.storage.recovery import needed_spans, order_entries
from tropism.serve.storage.sqlite_file import UPDATE_USED, SqliteFile, Statement, WriteGroup, unusable_journal
from tropism.wire.codec import encode

Durability = Literal["process", "power"]

logger = logging.getLogger("tropism.serve")

FORGET_AFTER = 30 * 86_400.0  # seconds
SWEEP_INTERVAL = 3600.0  # seconds between sweeps for expired sessions
LOG_SIZE = 4096  # entries

INSERT_SESSION = "insert into sessions values (?, ?, ?, ?, ?, ?, 0, 0, null)"
BEGIN_EPISODE = "update sessions set begin = ?, reached = ?, snapshot = null, used = ? where number = ?"
SAVE_CHECKPOINT = "update sessions set reached = ?, snapshot = ?, used = ? where number = ?"
DELETE_OLD_EPISODES = """
delete from episodes where session = ? and last < ? and not exists (
  select 1 from notes where notes.session = episodes.session and kind = 'snapshot' and begin <= last and first < seq
)
"""
DELETE_REPLIES = "delete from notes where session = ? and kind = 'reply'"
INSERT_NOTE = "insert into notes(session, kind, begin, seq, entry) values (?, ?, ?, ?, ?)"
SELECT_NUMBER = "select number from sessions where key = ?"
SELECT_SESSION = """
select number, begin, reached, snapshot, (select max(last) from episodes where session = number),
  environment, variant, owner
from sessions where key = ?
"""
SELECT_EXPIRED = "select number from sessions where used < ?"
DELETE_BETWEEN = "delete from episodes where session = ? and first >= ? and last < ?"
SESSION_TABLES = (("episodes", "session"), ("notes", "session"), ("sessions", "number"))


class LeasedSession:
    """A claimed session, and where it is in the file: the seqs of its episode's reset and of its next entry."""

    __slots__ = ("begin", "claim", "end", "expires", "number")

    def __init__(self, claim: Claim, expires: float):
        self.claim = claim
        self.expires = expires
        self.number: int | None = None  # None until it is stored
        self.begin = self.end = 0


def default_path(host: str, port: int) -> Path:
    """The default journal of the server at this address."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "tropism" / f"{host.replace(':', '_')}-{port}.journal"


class SqliteJournal(Journal):
    """Only one process can have the file open, so leases end with it and fencing tokens are not stored.

    Entries from one event-loop iteration are committed together. The file is read only when a session is claimed.
    """

    survives_crashes = True

    def __init__(
        self,
        path: str | Path,
        durability: Durability = "process",
        *,
        forget_after: float = FORGET_AFTER,
        lease_seconds: float = LEASE_SECONDS,
        max_entries: int = MAX_ENTRIES,
        log_size: int = LOG_SIZE,
    ):
        """Sessions unused for `forget_after` seconds are deleted."""
        self.path = Path(path)
        self.location = str(path)
        self._power = durability == "power"
        self._forget_after = forget_after
        self._lease_seconds = lease_seconds
        self._max_entries = max_entries
        self._tokens = count(1)
        self._leased: dict[bytes, LeasedSession] = {}
        self._group = WriteGroup()  # to be committed next
        self._unsynced: list[Ticket] = []  # to be settled after the next fsync
        self._needs_sync = False  # an fsync failed
        self._commit_handle: asyncio.Handle | None = None
        self._sync_task: asyncio.Task[None] | None = None
        self._file = SqliteFile(self.path, log_size)
        self._sync_disk = self._file.sync
        try:
            self._file.flush_log()
            self._sweep()
            ((last,),) = self._file.query("select ifnull(max(number), 0) from sessions")
            self._numbers = count(last + 1)
        except ServerError as error:
            self._file.close()
            raise unusable_journal(self.path, f"one that is not damaged ({error.message})") from None

    def open(self, key: bytes, record: SessionRecord, worker: str) -> Claim:
        return self._lease(Claim(key, record, worker, next(self._tokens)))

    def _lease(self, claim: Claim) -> Claim:
        """Make this the current claim of its session; earlier ones are stale."""
        self._leased[claim.key] = LeasedSession(claim, time.monotonic() + self._lease_seconds)
        return claim

    async def claim(self, key: bytes, worker: str) -> Claim | None:
        with self._file.lock:
            leased = self._leased.get(key)
            if leased is not None and leased.claim.worker != worker and time.monotonic() < leased.expires:
                raise leased_error()
            unread = self._lease(Claim(key, SessionRecord("", "", ""), worker, next(self._tokens)))
        self._commit()
        try:
            claim = await asyncio.to_thread(self._load, unread)
            await self._sync_committed()
        except BaseException:
            self._revoke(unread)
            raise
        if claim is None:
            self._revoke(unread)
        return claim

    async def _sync_committed(self) -> None:
        """Wait until everything that has been committed survives a power failure, if it must."""
        if self._needs_sync or self._unsynced:
            ticket = Ticket(pending=True)
            self._sync_later(ticket)
            await self.durable(ticket)

    def _load(self, claim: Claim) -> Claim | None:
        with self._file.lock:
            if not self._file.query(SELECT_NUMBER, claim.key):  # before the log is sorted, which is slow
                return None
            self._file.flush_log()
            ((number, begin, reached, snapshot, last, *record),) = self._file.query(SELECT_SESSION, claim.key)
            if last is None:
                message = "the journal is damaged: it has this session, but no entries of its episode"
                raise ServerError("JOURNAL_ERROR", message)
            leased = self._current(claim)
            if leased is None:
                raise leased_error()
            before, after = self._read_entries(number, begin, reached, last + 1)
            leased.number, leased.begin, leased.end = number, begin, last + 1
            self._group.statements.append((UPDATE_USED, (time.time(), number)))
            return claim._replace(record=SessionRecord(*record), point=RecoveryPoint(snapshot, before, after))

    def _read_entries(self, number: int, begin: int, reached: int, end: int) -> tuple[list[Entry], list[Entry]]:
        """The entries before and after the snapshot at `reached`, with notes in their places."""
        notes = self._file.notes(number)
        spans = needed_spans(notes, begin, end)
        lines = [(seq, entry) for span in spans.items() for _, seq, entry in self._file.lines(number, *span)]
        return order_entries(lines, notes, begin, reached, self._max_entries)

    def _current(self, claim: Claim) -> LeasedSession | None:
        """The session of this claim; None if the claim is stale."""
        leased = self._leased.get(claim.key)
        return leased if leased is not None and leased.claim.token == claim.token else None

    def _revoke(self, claim: Claim) -> None:
        with self._file.lock:
            if self._current(claim) is not None:
                del self._leased[claim.key]

    def append(self, claim: Claim, entries: Sequence[Entry], snapshot: bytes | None = None) -> Ticket:
        with self._file.lock:
            session, group = self._leased.get(claim.key), self._group
            if session is None or session.claim.token != claim.token:
                return Ticket(revoked_error())
            session.expires = time.monotonic() + self._lease_seconds
            if entries[0].kind == "reset":
                group.statements += self._begin_episode(session)
            number = session.number
            if number is None:
                return Ticket(revoked_error())
            for entry in entries:
                if entry.kind in NOTES:
                    row = (number, entry.kind, session.begin, session.end, encode(entry).decode())
                    group.statements.append((INSERT_NOTE, row))
                else:
                    group.lines.append((number, session.end, entry))
                    session.end += 1
            if snapshot is not None:
                group.statements += self._checkpoint(session, snapshot)
            group.keys.add(claim.key)
            return group

    def _begin_episode(self, session: LeasedSession) -> list[Statement]:
        """Begin another episode; deletes the previous one, except for entries that led to snapshots."""
        now, number = time.time(), session.number
        if number is None:
            session.number = next(self._numbers)
            return [(INSERT_SESSION, (session.number, session.claim.key, *session.claim.record, now))]
        session.begin = begin = session.end
        return [
            (DELETE_OLD_EPISODES, (number, begin)),
            (DELETE_REPLIES, (number,)),
            (BEGIN_EPISODE, (begin, begin, now, number)),
        ]

    def _checkpoint(self, session: LeasedSession, snapshot: bytes) -> list[Statement]:
        """Save a snapshot to replay from; deletes entries that neither a replay nor the history needs."""
        end, history_end = session.end, session.begin + self._max_entries
        statements: list[Statement] = [(SAVE_CHECKPOINT, (end, snapshot, time.time(), session.number))]
        if end > history_end:
            statements.append((DELETE_BETWEEN, (session.number, history_end, end - 1)))
        return statements

    def when_durable(self, ticket: Ticket, callback: DurableCallback) -> None:
        ticket.when_settled(callback)
        if ticket is self._group and self._commit_handle is None:
            self._commit_handle = asyncio.get_running_loop().call_soon(self._commit_batch)

    def _commit_batch(self) -> None:
        self._commit_handle = None
        self._commit()

    def _commit(self) -> ServerError | None:
        """Commit the entries of this event-loop iteration and settle their ticket; if it fails, revoke its claims."""
        with self._file.lock:
            group, self._group = self._group, WriteGroup()
            error = None
            try:
                self._file.write(group)
            except ServerError as failure:
                error = failure
                for key in group.keys:
                    self._leased.pop(key, None)
        if error is not None or group.empty or not self._power:
            group.settle(error)
        else:
            self._sync_later(group)
        return error

    def _sync_later(self, ticket: Ticket) -> None:
        self._unsynced.append(ticket)
        if self._sync_task is None:
            self._sync_task = asyncio.ensure_future(self._sync())

    async def _sync(self) -> None:
        """Keep syncing while callers wait; callers that arrive during an fsync share the next one."""
        try:
            while self._unsynced:
                waiting, self._unsynced = self._unsynced, []
                error = None
                try:
                    await asyncio.to_thread(self._sync_disk)
                    self._needs_sync, self._sync_disk = False, self._file.sync
                except (OSError, ServerError) as failure:
                    self._needs_sync, self._sync_disk = True, self._file.sync_all
                    message = f"applied, but perhaps not on the disk ({failure}); repeat it with its request_id"
                    error = ServerError("JOURNAL_ERROR", message)
                for ticket in waiting:
                    ticket.settle(error)
        finally:
            self._sync_task = None

    async def release(self, claim: Claim, snapshot: bytes | None) -> None:
        with self._file.lock:
            session, group = self._current(claim), self._group
            if session is None:
                return
            if snapshot is not None and session.number is not None:
                group.statements += self._checkpoint(session, snapshot)
            del self._leased[claim.key]
        if snapshot is not None:
            await self.durable(group)
        if time.time() > self._last_sweep + SWEEP_INTERVAL:
            self._sweep()

    async def forget(self, key: bytes) -> None:
        with self._file.lock:
            leased, group = self._leased.pop(key, None), self._group
            found = self._file.query(SELECT_NUMBER, key) if leased is None else []
            numbers = [number for (number,) in found] if leased is None else [leased.number]
            for number in numbers:
                if number is not None:
                    group.statements += _delete_statements(number)
        await self.durable(group)

    def _sweep(self) -> None:
        """Delete expired sessions."""
        self._last_sweep, expired = time.time(), WriteGroup()
        with self._file.lock:
            leased = {session.number for session in self._leased.values()}
            for (number,) in self._file.query(SELECT_EXPIRED, self._last_sweep - self._forget_after):
                if number not in leased:
                    expired.statements += _delete_statements(number)
            self._file.write(expired)

    async def close(self) -> None:
        error = self._commit()
        if error is not None:
            logger.error("the last entries, which were not acknowledged: %s", error.message)
        if self._sync_task is not None:
            await self._sync_task
        try:
            self._file.flush_log()
        except ServerError as failure:  # the next start does it
            logger.warning("the log of the journal could not be moved to its file: %s", failure.message)
        self._file.close()


def _delete_statements(number: int) -> list[Statement]:
    return [(f"delete from {table} where {column} = ?", (number,)) for table, column in SESSION_TABLES]
