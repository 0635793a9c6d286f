"""Connections to a Postgres journal, and the transaction that writes a group of appends."""

import time
from typing import Any, LiteralString

import psycopg

from tropism.errors import ServerError
from tropism.serve.storage.protocol import Claim, Ticket, revoked_error

CONNECT_SECONDS = 10.0  # Postgres may be restarting

Statement = tuple[LiteralString, tuple[Any, ...]]
Alias = tuple[bytes | None, bytes | None]  # the digest of an agent id, and the session's id, sealed with it

# Renews the leases, and inserts the entries whose claims are current; returns the current claims.
APPEND = """
with lease as (
  update sessions set expires = now() + make_interval(secs => %s), used = (select seconds from clock)
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
insert into sessions(key, environment, variant, owner, worker, token, expires, agent, sealed_id)
values (%s, %s, %s, %s, %s, %s, now(), %s, %s) on conflict do nothing
"""


class PostgresAppend(Ticket):
    """One append: its entries with their seqs, and the statements that follow if the claim is current.

    `new_session` has the alias of a session that is not stored yet. With `may_be_stale`, a stale claim is no error.
    """

    __slots__ = ("claim", "may_be_stale", "new_session", "rows", "statements")

    def __init__(self, claim: Claim | None = None):
        super().__init__(pending=True)
        self.claim = claim
        self.new_session: Alias | None = None
        self.may_be_stale = False
        self.rows: list[tuple[int, str]] = []
        self.statements: list[Statement] = []


class PostgresConnection:
    """A connection that is opened again when it was lost."""

    def __init__(self, url: str):
        self._url = url
        self._connection = self._connect()

    def get(self) -> psycopg.Connection[Any]:
        """The open connection; waits for Postgres for a while if it was lost."""
        deadline = time.monotonic() + CONNECT_SECONDS
        while self._connection.closed:
            try:
                self._connection = self._connect()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        return self._connection

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._url, autocommit=True, connect_timeout=5, options="-c search_path=tropism")

    @property
    def is_closed(self) -> bool:
        return bool(self._connection.closed)

    def close(self) -> None:
        self._connection.close()


def write_group(
    connection: PostgresConnection, group: list[PostgresAppend], lease_seconds: float
) -> list[ServerError | None]:
    """Commit a group; returns the error of each append."""
    try:
        current = _commit_or_retry(connection, group, lease_seconds)
    except ServerError as error:
        return [error] * len(group)
    return [None if _is_current(append, current) else revoked_error() for append in group]


def _is_current(append: PostgresAppend, claims: set[tuple[bytes, int]]) -> bool:
    return append.claim is None or append.may_be_stale or (append.claim.key, append.claim.token) in claims


def _commit_or_retry(
    connection: PostgresConnection, group: list[PostgresAppend], lease_seconds: float
) -> set[tuple[bytes, int]]:
    """Commit a group; once again if it was chosen to resolve a deadlock."""
    try:
        opened = connection.get()
    except psycopg.Error as error:
        raise _write_error("not applied", error) from error
    try:
        try:
            return _commit(opened, group, lease_seconds)
        except psycopg.errors.DeadlockDetected:
            return _commit(opened, group, lease_seconds)
    except psycopg.Error as error:
        unknown = "perhaps applied; repeat it with its request_id"
        raise _write_error(unknown if connection.is_closed else "not applied", error) from error


def _commit(
    connection: psycopg.Connection[Any], group: list[PostgresAppend], lease_seconds: float
) -> set[tuple[bytes, int]]:
    """Write a group in one transaction; returns the current claims, whose appends were written."""
    appends = [(append.claim, append) for append in group if append.claim is not None]
    rows = [(claim.key, claim.token, *row) for claim, append in appends for row in append.rows]
    arguments = (
        lease_seconds,
        [claim.key for claim, _ in appends],
        [claim.token for claim, _ in appends],
        *([row[column] for row in rows] for column in range(4)),
    )
    if not any(append.new_session or append.statements for append in group):
        return set(connection.execute(APPEND, arguments).fetchall()) if appends else set()
    with connection.transaction():
        for claim, append in appends:
            if append.new_session is not None:
                row = (claim.key, *claim.record, claim.worker, claim.token, *append.new_session)
                connection.execute(INSERT_SESSION, row)
        current = set(connection.execute(APPEND, arguments).fetchall())
        for claim, append in appends:
            if (claim.key, claim.token) in current:
                for sql, row in append.statements:
                    connection.execute(sql, row)
    return current


def _write_error(applied: str, error: Exception) -> ServerError:
    return ServerError("JOURNAL_ERROR", f"{applied}: the journal cannot be written ({first_line(error)})")


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
