"""A journal in memory, which lasts as long as the process."""

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from itertools import count

from tropism.serve.storage.protocol import (
    DURABLE,
    LEASE_SECONDS,
    MAX_ENTRIES,
    Claim,
    Entry,
    Journal,
    RecoveryPoint,
    SessionRecord,
    Ticket,
    leased_error,
    revoked_error,
)

MAX_RELEASED = 100_000  # sessions; the oldest are deleted first


class StoredSession:
    """The entries of a session; those of its episode begin at `begin`, those after its snapshot at `reached`."""

    __slots__ = ("begin", "claim", "entries", "expires", "reached", "snapshot")

    def __init__(self, claim: Claim, expires: float):
        self.claim = claim
        self.expires = expires
        self.snapshot: bytes | None = None
        self.entries: list[Entry] = []
        self.begin = self.reached = 0

    def begin_episode(self) -> None:
        """Drop all entries that did not lead to a snapshot."""
        while self.entries and self.entries[-1].kind != "snapshot":
            self.entries.pop()
        self.entries = [entry for entry in self.entries if entry.kind != "reply"]
        self.begin = self.reached = len(self.entries)
        self.snapshot = None

    def save(self, snapshot: bytes, max_entries: int) -> None:
        """Entries so far need not be replayed; those beyond the history are dropped, except for the last."""
        if len(self.entries) - self.begin > max_entries:
            episode = range(self.begin, len(self.entries))
            surplus = {*[index for index in episode if not self.entries[index].is_note][max_entries:-1]}
            self.entries = [entry for index, entry in enumerate(self.entries) if index not in surplus]
        self.reached, self.snapshot = len(self.entries), snapshot

    def point(self) -> RecoveryPoint:
        return RecoveryPoint(self.snapshot, self.entries[: self.reached], self.entries[self.reached :])


class MemoryJournal(Journal):
    """Entries are durable immediately."""

    survives_crashes = False

    def __init__(
        self,
        *,
        lease_seconds: float = LEASE_SECONDS,
        max_entries: int = MAX_ENTRIES,
        max_released: int = MAX_RELEASED,
    ):
        self._lease_seconds = lease_seconds
        self._max_entries = max_entries
        self._max_released = max_released
        self._lock = threading.Lock()
        self._tokens = count(1)
        self._sessions: dict[bytes, StoredSession] = {}
        self._released: OrderedDict[bytes, None] = OrderedDict()

    def open(self, key: bytes, record: SessionRecord, worker: str) -> Claim:
        claim = Claim(key, record, worker, next(self._tokens))
        self._sessions[key] = StoredSession(claim, time.monotonic() + self._lease_seconds)
        return claim

    async def claim(self, key: bytes, worker: str) -> Claim | None:
        with self._lock:
            session = self._sessions.get(key)
            if session is None or not session.entries:
                return None
            if session.claim.worker != worker and key not in self._released and time.monotonic() < session.expires:
                raise leased_error()
            session.claim = session.claim._replace(worker=worker, token=next(self._tokens))
            session.expires = time.monotonic() + self._lease_seconds
            self._released.pop(key, None)
            return session.claim._replace(point=session.point())

    def append(self, claim: Claim, entries: Sequence[Entry], snapshot: bytes | None = None) -> Ticket:
        with self._lock:
            session = self._session(claim)
            if session is None:
                return Ticket(revoked_error())
            if entries[0].kind == "reset":
                session.begin_episode()
            session.entries.extend(entries)
            session.expires = time.monotonic() + self._lease_seconds
            if snapshot is not None:
                session.save(snapshot, self._max_entries)
            return DURABLE

    def _session(self, claim: Claim) -> StoredSession | None:
        """The session, unless the claim is stale."""
        session = self._sessions.get(claim.key)
        current = session is not None and session.claim.token == claim.token and claim.key not in self._released
        return session if current else None

    async def release(self, claim: Claim, snapshot: bytes | None) -> None:
        with self._lock:
            session = self._session(claim)
            if session is None:
                return
            if snapshot is not None:
                session.save(snapshot, self._max_entries)
            self._released[claim.key] = None
            if len(self._released) > self._max_released:
                del self._sessions[self._released.popitem(last=False)[0]]

    async def forget(self, key: bytes) -> None:
        with self._lock:
            self._sessions.pop(key, None)
            self._released.pop(key, None)

    async def close(self) -> None: ...
