"""A thread that listens for requests for sessions, counts the running time, and deletes expired sessions."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

from tropism.serve.storage.postgres_writer import PostgresConnection, first_line

logger = logging.getLogger("tropism.serve")

TICK_SECONDS = 60.0  # between two advances of the clock, which is also its resolution
RETRY_SECONDS = 1.0  # after the connection was lost
ASK = "select pg_notify('tropism_wanted', %s) from sessions where key = %s"
WAKE = "select pg_notify('tropism_wanted', '')"
# Only if no other worker has advanced the clock since this one read it: no second is counted twice.
ADVANCE = "update clock set seconds = seconds + %s, ticks = ticks + 1 where ticks = %s"
DELETE_EXPIRED = "delete from sessions where used < (select seconds from clock) - %s and expires <= now()"


class PostgresWatch:
    """Calls `on_wanted` in its thread with the key of a session and the name of the worker that waits for it."""

    def __init__(
        self,
        connection: PostgresConnection,
        on_wanted: Callable[[bytes, str], None],
        forget_after: float,
        tick_seconds: float = TICK_SECONDS,
    ):
        self._connection = connection
        self._on_wanted = on_wanted
        self._forget_after = forget_after
        self._tick_seconds = tick_seconds
        self._ticks, self._read_at = -1, 0.0  # the state of the clock when it was last read, and the time of that
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="journal-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing:
            try:
                connection = self._connection.get()
                connection.execute("listen tropism_wanted")
                while not self._closing:
                    self._tick(connection)
                    self._listen(connection)
            except psycopg.Error as error:
                if not self._closing:
                    logger.warning("the journal is not watched: %s", first_line(error))
                    time.sleep(RETRY_SECONDS)
        self._connection.close()

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        """Report the sessions that other workers wait for, until the next tick is due."""
        for notice in connection.notifies(timeout=self._tick_seconds):
            if self._closing:
                return
            worker, _, key = notice.payload.partition(":")
            self._on_wanted(bytes.fromhex(key), worker)

    def _tick(self, connection: psycopg.Connection[Any]) -> None:
        """Advance the clock, unless another worker does, and delete expired sessions."""
        now = time.monotonic()
        with connection.transaction():
            advanced = connection.execute(ADVANCE, (now - self._read_at, self._ticks)).rowcount
            (self._ticks,) = connection.execute("select ticks from clock").fetchone() or (-1,)
            self._read_at = now
            if advanced:
                connection.execute(DELETE_EXPIRED, (self._forget_after,))

    def close(self, reader: PostgresConnection) -> None:
        """End the thread, which another connection has to wake."""
        self._closing = True
        with suppress(psycopg.Error):
            reader.get().execute(WAKE)
        self._thread.join(RETRY_SECONDS)
