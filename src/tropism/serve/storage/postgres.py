"""A journal in a Postgres database, shared by any number of workers."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tropism.errors import ServerError, ValidationError
from tropism.serve.storage.postgres_schema import migrate
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
from tropism.serve.storage.recovery import Note, decode_entry, needed_spans, order_entries
from tropism.wire.codec import encode

FORGET_AFTER = 30 * 86_400.0  # seconds
CONNECT_SECONDS = 10.0  # Postgres may be restarting
FIRST_TOKEN = 1

T = TypeVar("T")
Statement = tuple[LiteralString, tuple[Any, ...]]

# Renews the leases, and inserts the entries whose claims are current; returns the current claims.
APPEND = """
with lease as (
  update sessions set expires = now() + make_interval(secs => %s), used = now()
  from (select distinct * from unnest(%s::bytea[], %s::bigint[]) as each(key, token)) as claims
  where sessions.key = claims.key and sessions.token = claims.token returning sessions.key, sessions.token
), stored as (
  insert into entries select rows.key, rows.seq, rows.entry
  from unnest(%s::bytea[], %s::bigint[], %s::bigint[], %s::text[]) as rows(key, token, seq, entry)
  join lease on lease.key = rows.key and lease.token = rows.token
)
select key, token from lease
"""
INSERT_SESSION = """
insert into sessions(key, environment, variant, owner, worker, token, expires)
values (%s, %s, %s, %s, %s, %s, now()) on conflict do nothing
"""
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
update sessions set worker = %s, token = token + 1, expires = now() + make_interval(secs => %s)
where key = %s and (worker = %s or expires <= now())
returning token, environment, variant, owner, begin, reached, snapshot
"""
DELETE_EXPIRED = "delete from sessions where used < now() - make_interval(secs => %s) and expires <= now()"


class PostgresSession:
    """A claimed session, and the seqs of its episode's reset and of its next entry."""

    __slots__ = ("begin", "claim", "end", "stored")

    def __init__(self, claim: Claim, begin: int = 0, end: int = 0, stored: bool = False):
        self.claim = claim
        self.begin = begin
        self.end = end
        self.stored = stored


class PostgresAppend(Ticket):
    """One append: its entries with their seqs, and the statements that follow if the claim is current."""

    __slots__ = ("claim", "insert_session", "rows", "statements")

    def __init__(self, claim: Claim | None = None):
        super().__init__(pending=True)
        self.claim = claim
        self.insert_session = False
        self.rows: list[tuple[int, str]] = []
        self.statements: list[Statement] = []


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
    ):
        self.location = _without_password(url)
        self._url = url
        self._lease_seconds = lease_seconds
        self._max_entries = max_entries
        self._leased: dict[bytes, PostgresSession] = {}
        self._waiting: list[PostgresAppend] = []
        self._wake = threading.Condition()  # also guards the attributes above
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None  # that of the callers of `when_durable`
        self._reader_lock = threading.Lock()
        self._reader, self._writer = self._open_connections()
        with suppress(psycopg.Error):  # the next start tries again
            self._reader.execute(DELETE_EXPIRED, (forget_after,))
        self._thread = threading.Thread(target=self._write_until_closed, name="journal", daemon=True)
        self._thread.start()

    def _open_connections(self) -> tuple[psycopg.Connection[Any], psycopg.Connection[Any]]:
        with ExitStack() as opened:
            try:
                reader = opened.enter_context(closing(self._connect()))
                migrate(reader, self.location)
                writer = opened.enter_context(closing(self._connect()))
            except psycopg.Error as error:
                expected = f"the address of a Postgres database that can be written ({_first_line(error)})"
                raise ValidationError("journal", self.location, expected) from None
            opened.pop_all()
        return reader, writer

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._url, autocommit=True, connect_timeout=5, options="-c search_path=tropism")

    def _connect_patiently(self) -> psycopg.Connection[Any]:
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                return self._connect()
            except psycopg.OperationalError:
                if self._closing or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def open(self, key: bytes, record: SessionRecord, worker: str) -> Claim:
        claim = Claim(key, record, worker, FIRST_TOKEN)
        with self._wake:
            self._leased[key] = PostgresSession(claim)
        return claim

    async def claim(self, key: bytes, worker: str) -> Claim | None:
        await self.durable(self._enqueue(PostgresAppend()))  # after all earlier appends
        return await asyncio.to_thread(self._claim, key, worker)

    def _claim(self, key: bytes, worker: str) -> Claim | None:
        session = self._read(partial(self._load, key, worker))
        if session is None:
            return None
        with self._wake:
            self._leased[key] = session
        claim, session.claim = session.claim, session.claim._replace(point=RecoveryPoint())
        return claim

    def _read(self, function: Callable[[], T]) -> T:
        """Call a function that uses the reading connection, in a transaction; once again if the connection was lost."""
        with self._reader_lock:
            for again in (True, False):
                try:
                    if self._reader.closed:
                        self._reader = self._connect_patiently()
                    with self._reader.transaction():
                        return function()
                except psycopg.Error as error:
                    if not (again and self._reader.closed):
                        message = f"the journal cannot be read or written ({_first_line(error)})"
                        raise ServerError("JOURNAL_ERROR", message) from error
        raise AssertionError

    def _load(self, key: bytes, worker: str) -> PostgresSession | None:
        row = self._reader.execute(CLAIM, (worker, self._lease_seconds, key, worker)).fetchone()
        if row is None:
            if self._reader.execute("select 1 from sessions where key = %s", (key,)).fetchone() is None:
                return None
            raise leased_error()
        token, *record, begin, reached, snapshot = row
        entries = self._reader.execute("select seq, entry from entries where key = %s order by seq", (key,)).fetchall()
        notes = self._reader.execute(
            "select begin, seq, entry from notes where key = %s order by number", (key,)
        ).fetchall()
        end = entries[-1][0] + 1 if entries else begin
        placed = [Note(first, seq, decode_entry(entry)) for first, seq, entry in notes]
        spans = needed_spans(placed, begin, end).items()
        needed = [row for row in entries if any(first <= row[0] < last for first, last in spans)]
        lines = [(seq, decode_entry(entry)) for seq, entry in needed]
        point = RecoveryPoint(snapshot, *order_entries(lines, placed, begin, reached, self._max_entries))
        return PostgresSession(Claim(key, SessionRecord(*record), worker, token, point), begin, end, True)

    def append(self, claim: Claim, entries: Sequence[Entry], snapshot: bytes | None = None) -> Ticket:
        with self._wake:
            session = self._current(claim)
            if session is None:
                return Ticket(revoked_error())
            append = PostgresAppend(session.claim)
            if not session.stored:
                append.insert_session = session.stored = True
            if entries[0].kind == "reset":
                session.begin = begin = session.end
                append.statements += [
                    (DELETE_OLD_ENTRIES, (claim.key, begin)),
                    (DELETE_REPLIES, (claim.key, begin)),
                    (BEGIN_EPISODE, (begin, begin, claim.key)),
                ]
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
            errors = self._write_group(group)
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

    def _write_group(self, group: list[PostgresAppend]) -> list[ServerError | None]:
        """Commit a group; returns the error of each append."""
        for retry in (True, False):
            try:
                if self._writer.closed:
                    self._writer = self._connect_patiently()
                current = self._commit(group)
                break
            except psycopg.errors.DeadlockDetected as error:
                if not retry:
                    return [_write_error("not applied", error)] * len(group)
            except psycopg.Error as error:
                applied = "perhaps applied; repeat it with its request_id" if self._writer.closed else "not applied"
                return [_write_error(applied, error)] * len(group)
        return [
            None if append.claim is None or (append.claim.key, append.claim.token) in current else revoked_error()
            for append in group
        ]

    def _commit(self, group: list[PostgresAppend]) -> set[tuple[bytes, int]]:
        """Write a group in one transaction; returns the current claims, whose appends were written."""
        claims = [append.claim for append in group if append.claim is not None]
        if not claims:
            return set()
        rows = [(append.claim, *row) for append in group if append.claim is not None for row in append.rows]
        arguments = (
            self._lease_seconds,
            [claim.key for claim in claims],
            [claim.token for claim in claims],
            [claim.key for claim, _, _ in rows],
            [claim.token for claim, _, _ in rows],
            [seq for _, seq, _ in rows],
            [entry for _, _, entry in rows],
        )
        if not any(append.insert_session or append.statements for append in group):
            return set(self._writer.execute(APPEND, arguments).fetchall())
        with self._writer.transaction():
            for append in group:
                if append.insert_session and append.claim is not None:
                    claim = append.claim
                    row = (claim.key, *claim.record, claim.worker, claim.token)
                    self._writer.execute(INSERT_SESSION, row)
            current = set(self._writer.execute(APPEND, arguments).fetchall())
            for append in group:
                if append.claim is not None and (append.claim.key, append.claim.token) in current:
                    for sql, row in append.statements:
                        self._writer.execute(sql, row)
        return current

    async def release(self, claim: Claim, snapshot: bytes | None) -> None:
        with self._wake:
            session = self._current(claim)
            if session is None:
                return
            del self._leased[claim.key]
            if not session.stored:
                return
            append = PostgresAppend(session.claim)
            append.statements += self._save(session, snapshot) if snapshot is not None else []
            append.statements.append((END_LEASE, (claim.key, claim.token)))
            self._enqueue(append)
        await self.durable(append)

    async def forget(self, key: bytes) -> None:
        await self.durable(self._enqueue(PostgresAppend()))
        with self._wake:
            self._leased.pop(key, None)
        await asyncio.to_thread(self._read, lambda: self._reader.execute("delete from sessions where key = %s", (key,)))

    async def close(self) -> None:
        with self._wake:
            self._closing = True
            held = [session.claim for session in self._leased.values() if session.stored]
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)
        with suppress(psycopg.Error):  # otherwise the leases expire
            for claim in held:
                self._reader.execute(END_LEASE, (claim.key, claim.token))
        self._reader.close()
        self._writer.close()


def _settle(group: list[PostgresAppend], errors: list[ServerError | None]) -> None:
    for append, error in zip(group, errors, strict=True):
        append.settle(error)


def _write_error(applied: str, error: Exception) -> ServerError:
    return ServerError("JOURNAL_ERROR", f"{applied}: the journal cannot be written ({_first_line(error)})")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def _without_password(url: str) -> str:
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error as error:
        raise ValidationError("journal", url.split("@")[-1], f"postgresql://USER@HOST/DATABASE ({error})") from None
    return f"postgresql://{parts.get('host', 'localhost')}/{parts.get('dbname', parts.get('user', ''))}"
