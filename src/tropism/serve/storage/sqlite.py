"""A journal in one SQLite file."""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Literal

from tropism.errors import ServerError
from tropism.serve.storage import statements as sql
from tropism.serve.storage.contents import read_session
from tropism.serve.storage.damage import current_boot_id, report_damage
from tropism.serve.storage.eraser import Eraser, erase_discarded
from tropism.serve.storage.protocol import (
    FORGET_AFTER,
    LEASE_SECONDS,
    MAX_ENTRIES,
    MOVES,
    NOTES,
    Claim,
    DurableCallback,
    Entry,
    Journal,
    SessionRecord,
    Ticket,
    leased_error,
    revoked_error,
)
from tropism.serve.storage.schema import unusable_journal
from tropism.serve.storage.sqlite_file import SqliteFile
from tropism.serve.storage.statements import Statement, WriteGroup, close_statements
from tropism.wire.codec import encode

Durability = Literal["process", "power"]

logger = logging.getLogger("tropism.serve")

SWEEP_INTERVAL = 3600.0  # seconds between sweeps for expired sessions
LOG_SIZE = 4096  # entries
SWEEP_SIZE = 256  # sessions in one transaction
ERASE_INTERVAL = 30.0  # seconds until a closed session is erased from the file


class LeasedSession:
    """A claimed session, and where it is in the file: the seqs of its episode's reset and of its next entry."""

    __slots__ = ("begin", "claim", "end", "expires", "is_doubtful", "number")

    def __init__(self, claim: Claim, expires: float):
        self.claim = claim
        self.expires = expires
        self.number: int | None = None  # None until it is stored
        self.begin = self.end = 0
        self.is_doubtful = False


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
        boot_id: str | None = None,
        erase_interval: float = ERASE_INTERVAL,
    ):
        """Sessions unused for `forget_after` seconds of the server's running time are deleted."""
        self.path, self.location = Path(path), str(path)
        self._power = durability == "power"
        self._forget_after, self._lease_seconds, self._max_entries = forget_after, lease_seconds, max_entries
        self._tokens = count(1)
        self._leased: dict[bytes, LeasedSession] = {}
        self._group = WriteGroup()  # to be committed next
        self._unsynced: list[Ticket] = []  # to be settled after the next fsync
        self._needs_sync = False  # an fsync failed
        self._commit_handle: asyncio.Handle | None = None
        self._sync_task: asyncio.Task[None] | None = None
        self._last_sweep, self._eraser = 0.0, Eraser(self._erase, erase_interval)
        self._undeleted: dict[bytes, int] = {}  # numbers of closed sessions that could not be deleted yet
        self._file = SqliteFile(self.path, log_size)
        self._now, self._sync_disk = self._file.running_time, self._file.sync
        try:
            ((last,),) = self._file.query(sql.SELECT_LAST_NUMBER)
            self._numbers = count((last or 0) + 1)
            report_damage(self._file, durability, boot_id or current_boot_id())
            self._try_maintenance()
            if self._file.query(sql.SELECT_DISCARDED):
                self._eraser.request()
        except ServerError as error:
            self._file.close()
            expected = f"one that is not damaged ({error.message}); tropism journal salvage rescues its sessions"
            raise unusable_journal(self.path, expected) from None

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
            known = self._file.query(sql.SELECT_NUMBER, claim.key)  # before the log is sorted, which is slow
            if not known or claim.key in self._undeleted:
                return None
            with suppress(ServerError):  # on a full disk the log is read as it is
                self._file.flush_log()
            if (leased := self._current(claim)) is not None:
                ((leased.number,),) = known  # a sweep keeps the session
        stored = read_session(self._file, claim.key, self._max_entries)
        with self._file.lock:
            leased = self._current(claim)
            if leased is None:
                raise leased_error()
            leased.begin, leased.end, leased.is_doubtful = stored.begin, stored.end, stored.is_doubtful
            self._group.statements.append((sql.UPDATE_USED, (self._now(), stored.number)))
            return claim._replace(record=stored.record, point=stored.point, is_doubtful=stored.is_doubtful)

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
            if session.is_doubtful and entries[0].kind in MOVES:
                group.statements.append((sql.CLEAR_DOUBT, (number,)))
                session.is_doubtful = False
            for entry in entries:
                if entry.kind in NOTES:
                    row = (number, entry.kind, session.begin, session.end, encode(entry).decode())
                    group.statements.append((sql.INSERT_NOTE, row))
                else:
                    group.lines.append((number, session.end, entry))
                    session.end += 1
            if snapshot is not None:
                group.statements += self._save_snapshot(session, snapshot)
            group.keys.add(claim.key)
            return group

    def _begin_episode(self, session: LeasedSession) -> list[Statement]:
        """Begin another episode; deletes the previous one, except for entries that led to snapshots."""
        now, number = self._now(), session.number
        if number is None:
            session.number = next(self._numbers)
            return [(sql.INSERT_SESSION, (session.number, session.claim.key, *session.claim.record, now, 0, 0, None))]
        session.begin = begin = session.end
        return [
            (sql.DELETE_OLD_PIECE, (number, begin)),
            (sql.DISCARD_OLD_PIECES, (number, begin)),
            (sql.DELETE_REPLIES, (number,)),
            (sql.BEGIN_EPISODE, (begin, begin, now, number)),
        ]

    def _save_snapshot(self, session: LeasedSession, snapshot: bytes) -> list[Statement]:
        """Save a snapshot to replay from; deletes entries that neither a replay nor the history needs."""
        end, history_end = session.end, session.begin + self._max_entries
        statements: list[Statement] = [(sql.SAVE_SNAPSHOT, (end, snapshot, self._now(), session.number))]
        if end > history_end:
            statements.append((sql.DELETE_BETWEEN, (session.number, history_end, end - 1)))
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
                group.statements += self._save_snapshot(session, snapshot)
            del self._leased[claim.key]
        if snapshot is not None:
            await self.durable(group)
        if self._now() > self._last_sweep + SWEEP_INTERVAL:
            self._eraser.request()

    async def forget(self, key: bytes) -> None:
        with self._file.lock:
            leased, group = self._leased.pop(key, None), self._group
            found = self._file.query(sql.SELECT_NUMBER, key) if leased is None else [(leased.number,)]
            numbers = [number for (number,) in found if number is not None]
            for number in numbers:
                group.statements += close_statements(number)
        try:
            await self.durable(group)
        except ServerError as error:  # a full disk: the session is closed all the same
            logger.error("a closed session is deleted later: %s", error.message)
            self._undeleted |= dict(zip([key], numbers, strict=False))
        if numbers:
            self._eraser.request()

    def _erase(self) -> bool:
        """Erase closed and expired sessions from the files; returns whether it succeeded."""
        try:
            self._try_maintenance()
            erase_discarded(self._file)
        except ServerError as error:
            logger.error("closed sessions are not erased from the journal yet: %s", error.message)
            return False
        return True

    def _try_maintenance(self) -> None:
        """Sort the log and delete closed and expired sessions; on a full disk, later."""
        try:
            self._file.flush_log()
            self._sweep()
        except ServerError as error:
            if not self._file.is_readable():
                raise
            logger.error("the journal cannot be written: %s", error.message)

    def _sweep(self) -> None:
        """Delete expired sessions, and closed ones that could not be deleted before."""
        self._last_sweep = now = self._now()
        expired = self._file.query(sql.SELECT_EXPIRED, now - self._forget_after)
        undeleted = dict(self._undeleted)
        numbers = [number for (number,) in expired] + list(undeleted.values())
        for start in range(0, len(numbers), SWEEP_SIZE):
            self._close_sessions(set(numbers[start : start + SWEEP_SIZE]))
        for key in undeleted:
            del self._undeleted[key]
        self._file.save_facts(clock=now)

    def _close_sessions(self, numbers: set[int]) -> None:
        """Delete the sessions with these numbers that are not live."""
        with self._file.lock:
            closing = numbers - {session.number for session in self._leased.values()}
            self._file.write(WriteGroup([statement for number in closing for statement in close_statements(number)]))

    async def close(self) -> None:
        error = self._commit()
        if error is not None:
            logger.error("the last entries, which were not acknowledged: %s", error.message)
        if self._sync_task is not None:
            await self._sync_task
        await asyncio.to_thread(self._eraser.close)
        try:
            self._file.flush_log()
            self._file.save_facts(clock=self._now(), is_open=False)
        except ServerError as failure:  # the next start does it
            logger.warning("the log of the journal could not be moved to its file: %s", failure.message)
        self._file.close()
