"""Deletes closed sessions from the file of a journal in pieces, between the commits of other sessions."""

import threading
import time
from collections.abc import Callable

from tropism.serve.storage.sqlite_file import SqliteFile

PAUSE_SECONDS = 0.001  # between two pieces, so that waiting threads get the lock of the file


def erase_discarded(file: SqliteFile) -> None:
    """Delete what is discarded, erase it from the logs, and return the free space."""
    discarded = file.discarded_sessions()
    while discarded:
        file.delete_some(discarded)
        time.sleep(PAUSE_SECONDS)
    while file.shrink():
        time.sleep(PAUSE_SECONDS)
    file.sync_all()


class Eraser:
    """Calls `erase` in a thread, `interval` seconds after a request; requests that arrive meanwhile share the call.

    `erase` returns whether it succeeded; otherwise it is called again after the interval.
    """

    def __init__(self, erase: Callable[[], bool], interval: float):
        self._erase, self._interval = erase, interval
        self._lock = threading.Lock()  # guards the two attributes below
        self._is_requested = False
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def request(self) -> None:
        """Never blocks; any thread."""
        with self._lock:
            self._is_requested = True
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="journal-eraser", daemon=True)
                thread.start()  # raises if the system allows no more threads; the next request tries again
                self._thread = thread

    def _run(self) -> None:
        while self._take_request():
            if not self._erase() and not self._closing.is_set():
                self.request()

    def _take_request(self) -> bool:
        """Wait for the interval; returns whether there was a request, and ends the thread otherwise."""
        self._closing.wait(self._interval)
        with self._lock:
            requested, self._is_requested = self._is_requested, False
            if not requested:
                self._thread = None
            return requested

    def close(self) -> None:
        """Erase what was requested, once, and end the thread."""
        self._closing.set()
        if (thread := self._thread) is not None:
            thread.join()
