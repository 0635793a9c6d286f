"""A journal in a Postgres database, shared by any number of workers."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tropism.errors import ServerError, ValidationError
from tropism.serve.storage.postgres_schema import migrate
from tropism.serve.storage.postgres_watch import ASK, PostgresWatch
from tropism.serve.storage.postgres_writer import (
    Alias,
    PostgresAppend,
    PostgresConnection,
    Statement,
    first_line,
    write_group,
)
from tropism.serve.storage.protocol import (
    FORGET_AFTER,
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
    WantedCallback,
    leased_error,
    revoked_error,
)
from tropism.serve.storage.recovery import Note, decode_entry, order_entries
from tropism.wire.codec import encode

HANDOVER_SECONDS = 5.0  # to wait until another worker has released a session
PAUSES = (0.01, 0.25)  # seconds between two attempts to claim a session: the first, and the longest
FIRST_TOKEN = 1

T = TypeVar("T")

BEGIN_EPISODE = "update sessions set begin = %s, reached = %s, snapshot = null where key = %s"
DELETE_OLD_ENTRIES = """
delete from entries where key = %s and seq < %s and not exists (
  select 1 from notes where notes.key = entries.key and notes.kind = 'snapshot'
  and notes.begin <= entries.seq and entries.seq < notes.seq
)
"""
DELETE_REPLIES = "delete from notes where key = %s and kind = 'reply' and seq <= %s"
INSERT_NOTE = "insert into notes(key, kind, begin, seq, entry) values (%s, %s, %s, %s, %s)"
SAVE_SNAPSHOT = "update sessions set reached = %s, snapshot = %s where key = %s"
DELETE_BETWEEN = "delete from entries where key = %s and seq >= %s and seq < %s"
END_LEASE = "update sessions set expires = now() where key = %s and token = %s"
CLAIM = """
update sessions set worker = %s, token = token + 1, expires = now() + make_interval(secs => %s),
  used = (select seconds from clock)
where key = %s and (worker = %s or expires <= now())
returning token, environment, variant, owner, begin, reached, snapshot
"""
SELECT_NEEDED = """
select seq, entry from entries where key = %s and (seq >= %s or exists (
  select 1 from notes where notes.key = entries.key and notes.kind = 'snapshot'
  and notes.begin <= entries.seq and entries.seq < notes.seq
)) order by seq
"""


class PostgresSession:
    """A claimed session, and the seqs of its episode's reset and of its next entry."""

    __slots__ = ("alias", "begin", "claim", "end", "stored")

    def __init__(self, claim: Claim, begin: int = 0, end: int = 0, stored: bool = False):
        self.claim = claim
        self.alias: Alias = (None, None)
        self.begin = begin
        self.end = end
        self.stored = stored


class PostgresJournal(Journal):
    """A thread writes all waiting appends in one transaction, and compares their tokens in the statement that inserts.

    A commit that was interrupted may have been applied: its appends fail and their claims are revoked, so that the
    sessions are loaded again, and repeated requests with a request id get their first reply.
    """

    survives_crashes = True

    def __init__(
        self,
        url: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        max_entries: int = MAX_ENTRIES,
        forget_after: float = FORGET_AFTER,
        handover_seconds: float = HANDOVER_SECONDS,
    ):
        """Sessions unused for `forget_after` seconds of the workers' running time are deleted."""
        self.location = _without_password(url)
        self._url = url
        self._lease_seconds = lease_seconds
        self._handover_seconds = handover_seconds
        self._max_entries = max_entries
        self._leased: dict[bytes, PostgresSession] = {}
        self._waiting: list[PostgresAppend] = []
        self._wake = threading.Condition()  # also guards the attributes above
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None  # that of the callers of `when_durable`
        self._reader_lock = threading.Lock()
        self._reader, self._writer, watching = self._open_connections()
        self._on_wanted: WantedCallback = lambda _: None
        self._watch = PostgresWatch(watching, self._release_later, forget_after)
        self._thread = threading.Thread(target=self._write_until_closed, name="journal", daemon=True)
        self._thread.start()

    def _open_connections(self) -> tuple[PostgresConnection, PostgresConnection, PostgresConnection]:
        """For reading and claiming, for appending, and for notifications."""
        with ExitStack() as opened:
            try:
                reader = opened.enter_context(closing(PostgresConnection(self._url)))
                migrate(reader.get(), self.location)
                writer = opened.enter_context(closing(PostgresConnection(self._url)))
                watching = opened.enter_context(closing(PostgresConnection(self._url)))
            except psycopg.Error as error:
                expected = f"the address of a Postgres database that can be written ({first_line(error)})"
                raise ValidationError("journal", self.location, expected) from None
            opened.pop_all()
        return reader, writer, watching

    def open(self, key: bytes, record: SessionRecord, worker: str) -> Claim:
        claim = Claim(key, record, worker, FIRST_TOKEN)
        with self._wake:
            self._leased[key] = PostgresSession(claim)
        return claim

    def add_alias(self, claim: Claim, alias: bytes, sealed_id: bytes) -> None:
        with self._wake:
            self._leased[claim.key].alias = alias, sealed_id

    async def find_alias(self, alias: bytes) -> bytes | None:
        await self.durable(self._enqueue(PostgresAppend()))
        query = "select sealed_id from sessions where agent = %s"
        found = await asyncio.to_thread(self._read, lambda connection: connection.execute(query, (alias,)).fetchone())
        return None if found is None else found[0]

    def when_wanted(self, callback: WantedCallback) -> None:
        self._on_wanted = callback

    def _release_later(self, key: bytes, worker: str) -> None:
        """Report that another worker waits for this session; called by the thread of `PostgresWatch`."""
        with self._wake:
            session, loop = self._leased.get(key), self._loop
        if session is not None and session.claim.worker != worker and loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._on_wanted, key)

    async def claim(self, key: bytes, worker: str) -> Claim | None:
        await self.durable(self._enqueue(PostgresAppend()))  # after all earlier appends
        deadline, (pause, longest) = time.monotonic() + self._handover_seconds, PAUSES
        while True:
            exists, claim = await asyncio.to_thread(self._claim, key, worker)
            if claim is not None or not exists:
                return claim
            if time.monotonic() >= deadline:
                raise leased_error()
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    def _claim(self, key: bytes, worker: str) -> tuple[bool, Claim | None]:
        """Whether the session exists, and the claim; None if another worker holds it, which is asked to release it."""
        session = self._read(partial(self._load, key, worker))
        if session is None:
            return self._read(partial(_ask_to_release, key, worker)), None
        with self._wake:
            self._leased[key] = session
        claim, session.claim = session.claim, session.claim._replace(point=RecoveryPoint())
        return True, claim

    def _read(self, function: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Call a function with the reading connection, in a transaction; once again if the connection was lost."""
        with self._reader_lock:
            try:
                try:
                    return self._in_transaction(function)
                except psycopg.Error:
                    if not self._reader.is_closed:
                        raise
                    return self._in_transaction(function)
            except psycopg.Error as error:
                message = f"the journal cannot be read or written ({first_line(error)})"
                raise ServerError("JOURNAL_ERROR", message) from error

    def _in_transaction(self, function: Callable[[psycopg.Connection[Any]], T]) -> T:
        connection = self._reader.get()
        with connection.transaction():
            return function(connection)

    def _load(self, key: bytes, worker: str, connection: psycopg.Connection[Any]) -> PostgresSession | None:
        row = connection.execute(CLAIM, (worker, self._lease_seconds, key, worker)).fetchone()
        if row is None:
            return None
        connection.execute(ASK, (f"{worker}:{key.hex()}", key))  # a worker whose lease expired drops its copy
        token, *record, begin, reached, snapshot = row
        entries = connection.execute(SELECT_NEEDED, (key, begin)).fetchall()
        notes = connection.execute(
            "select begin, seq, entry from notes where key = %s order by number", (key,)
        ).fetchall()
        end = max(begin, entries[-1][0] + 1) if entries else begin
        placed = [Note(first, seq, decode_entry(entry)) for first, seq, entry in notes]
        lines = [(seq, decode_entry(entry)) for seq, entry in entries]
        point = RecoveryPoint(snapshot, *order_entries(lines, placed, begin, reached, self._max_entries))
        return PostgresSession(Claim(key, SessionRecord(*record), worker, token, point), begin, end, True)

    def append(self, claim: Claim, entries: Sequence[Entry], snapshot: bytes | None = None) -> Ticket:
        with self._wake:
            session = self._current(claim)
            if session is None:
                return Ticket(revoked_error())
            append = PostgresAppend(session.claim)
            if not session.stored:
                append.new_session, session.stored = session.alias, True
            if entries[0].kind == "reset":
                session.begin = begin = session.end
                statements: list[Statement] = [
                    (DELETE_OLD_ENTRIES, (claim.key, begin)),
                    (DELETE_REPLIES, (claim.key, begin)),
                    (BEGIN_EPISODE, (begin, begin, claim.key)),
                ]
                append.statements += statements
            for entry in entries:
                text = encode(entry).decode()
                if entry.kind in NOTES:
                    append.statements.append((INSERT_NOTE, (claim.key, entry.kind, session.begin, session.end, text)))
                else:
                    append.rows.append((session.end, text))
                    session.end += 1
            if snapshot is not None:
                append.statements += self._save(session, snapshot)
            return self._enqueue(append)

    def _current(self, claim: Claim) -> PostgresSession | None:
        """The session of this claim; None if the claim is known to be stale."""
        session = self._leased.get(claim.key)
        return session if session is not None and session.claim.token == claim.token else None

    def _save(self, session: PostgresSession, snapshot: bytes) -> list[Statement]:
        """Save a snapshot to replay from; deletes entries that neither a replay nor the history needs."""
        key, end, history_end = session.claim.key, session.end, session.begin + self._max_entries
        statements: list[Statement] = [(SAVE_SNAPSHOT, (end, snapshot, key))]
        if end > history_end:
            statements.append((DELETE_BETWEEN, (key, history_end, end - 1)))
        return statements

    def _enqueue(self, append: PostgresAppend) -> PostgresAppend:
        with self._wake:
            self._waiting.append(append)
            self._wake.notify()
        return append

    def when_durable(self, ticket: Ticket, callback: DurableCallback) -> None:
        with self._wake:  # a ticket is settled on this loop from now on
            self._loop = asyncio.get_running_loop()
        ticket.when_settled(callback)

    def _write_until_closed(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._closing)
                group, self._waiting = self._waiting, []
            if not group:
                return
            errors = write_group(self._writer, group, self._lease_seconds)
            with self._wake:
                for append, error in zip(group, errors, strict=True):
                    if error is not None and append.claim is not None and self._current(append.claim) is not None:
                        del self._leased[append.claim.key]
                loop = self._loop
                if loop is None:
                    _settle(group, errors)
            if loop is not None:
                with suppress(RuntimeError):  # the loop is closed, and its callbacks with it
                    loop.call_soon_threadsafe(_settle, group, errors)

    async def release(self, claim: Claim, snapshot: bytes | None) -> None:
        with self._wake:
            session = self._current(claim)
            if session is None:
                return
            del self._leased[claim.key]
            if not session.stored:
                return
            append = PostgresAppend(session.claim)
            append.may_be_stale = True
            append.statements += self._save(session, snapshot) if snapshot is not None else []
            append.statements.append((END_LEASE, (claim.key, claim.token)))
            self._enqueue(append)
        await self.durable(append)

    async def forget(self, key: bytes) -> None:
        await self.durable(self._enqueue(PostgresAppend()))
        with self._wake:
            self._leased.pop(key, None)
        await asyncio.to_thread(
            self._read, lambda connection: connection.execute("delete from sessions where key = %s", (key,))
        )

    async def close(self) -> None:
        with self._wake:
            self._closing = True
            held = [session.claim for session in self._leased.values() if session.stored]
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._watch.close, self._reader)
        with suppress(psycopg.Error):  # otherwise the leases expire
            for claim in held:
                self._reader.get().execute(END_LEASE, (claim.key, claim.token))
        self._reader.close()
        self._writer.close()


def _ask_to_release(key: bytes, worker: str, connection: psycopg.Connection[Any]) -> bool:
    """Ask the worker that holds this session to release it; returns whether the session exists."""
    return connection.execute(ASK, (f"{worker}:{key.hex()}", key)).fetchone() is not None


def _settle(group: list[PostgresAppend], errors: list[ServerError | None]) -> None:
    for append, error in zip(group, errors, strict=True):
        append.settle(error)


def _without_password(url: str) -> str:
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error as error:
        raise ValidationError("journal", url.split("@")[-1], f"postgresql://USER@HOST/DATABASE ({error})") from None
    return f"postgresql://{parts.get('host', 'localhost')}/{parts.get('dbname', parts.get('user', ''))}"
