"""A store in memory, which lasts as long as the process."""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from tropism.serve.storage.protocol import (
    MAX_ENTRIES,
    DurableCallback,
    Entry,
    LostCallback,
    RecoveryPoint,
    SavedSnapshot,
    SessionRecord,
)

MAX_REPLIES = 1024  # per session; callers only repeat recent requests
MAX_REPLY_BYTES = 2**24  # per session
LARGE_REPLY = MAX_REPLY_BYTES // MAX_REPLIES  # bytes; replies up to this size cannot exceed the limit together
MAX_DROPPED_IDS = 100_000  # per episode: ids of requests whose replies were dropped; the oldest are removed first
DIGEST_BYTES = 8  # of such an id
MAX_EVICTED = 100_000  # sessions; the oldest are removed first


class MemoryStore:
    """Keeps everything in memory; durable immediately."""

    def __init__(self) -> None:
        self.on_lost: LostCallback = lambda _: None
        self._records: dict[str, SessionRecord] = {}
        self._episodes: dict[str, list[Entry]] = {}
        self._replies: dict[str, dict[str, bytes]] = {}
        self._dropped: dict[str, dict[bytes, None]] = {}  # digests, in order
        self._snapshots: dict[str, dict[str, SavedSnapshot]] = {}
        self._evicted: OrderedDict[str, bytes] = OrderedDict()

    def open(self, session: str, record: SessionRecord) -> None:
        self._records[session] = record
        self._evicted.pop(session, None)

    def append(
        self, session: str, entries: Sequence[Entry], _snapshot: bytes | None = None, _parent: str | None = None, /
    ) -> None:
        for entry in entries:
            if entry.kind == "reset":
                self._episodes[session] = [entry]
                self._replies.pop(session, None)
                self._dropped.pop(session, None)
            elif len(episode := self._episodes[session]) < MAX_ENTRIES:
                episode.append(entry)

    def episode(self, session: str) -> list[Entry]:
        return self._episodes.get(session, [])

    def cache_reply(self, session: str, request_id: str, reply: bytes) -> None:
        replies = self._replies.setdefault(session, {})
        replies[request_id] = reply
        if len(replies) > MAX_REPLIES:
            self._drop(session, replies)
        while len(reply) > LARGE_REPLY and len(replies) > 1 and _size(replies) > MAX_REPLY_BYTES:
            self._drop(session, replies)

    def save_reply(self, session: str, request_id: str, reply: bytes) -> None:
        self.cache_reply(session, request_id, reply)

    def _drop(self, session: str, replies: dict[str, bytes]) -> None:
        """Drop the oldest reply, but keep the fact that the request was answered."""
        oldest = next(iter(replies))
        del replies[oldest]
        self.mark_dropped(session, oldest)

    def mark_dropped(self, session: str, request_id: str) -> None:
        """Record that this request was answered and its reply dropped."""
        dropped = self._dropped.setdefault(session, {})
        dropped[_digest(request_id)] = None
        if len(dropped) > MAX_DROPPED_IDS:
            del dropped[next(iter(dropped))]

    def reply(self, session: str, request_id: str) -> bytes | None:
        return self._replies.get(session, {}).get(request_id)

    def reply_was_dropped(self, session: str, request_id: str) -> bool:
        dropped = self._dropped.get(session)
        return dropped is not None and _digest(request_id) in dropped

    def save_snapshot(self, session: str, snapshot_id: str, snapshot: bytes) -> None:
        episode = self.episode(session)
        self.add_snapshot(session, snapshot_id, SavedSnapshot(snapshot, episode, len(episode)))

    def add_snapshot(self, session: str, snapshot_id: str, saved: SavedSnapshot) -> None:
        """Add a snapshot loaded from elsewhere."""
        self._snapshots.setdefault(session, {})[snapshot_id] = saved

    def snapshots(self, session: str) -> dict[str, SavedSnapshot]:
        return self._snapshots.get(session, {})

    def evict(self, session: str, snapshot: bytes) -> None:
        self._evicted[session] = snapshot
        while len(self._evicted) > MAX_EVICTED:
            self.forget(next(iter(self._evicted)))

    def lookup(self, session: str) -> SessionRecord | None:
        return self._records.get(session)

    def load(self, session: str) -> RecoveryPoint | None:
        snapshot = self._evicted.get(session)
        return None if snapshot is None else RecoveryPoint(snapshot, [], [])

    def release(self, session: str) -> None:
        if session not in self._evicted:
            self.forget(session)

    def forget(self, session: str) -> None:
        for each in (self._records, self._episodes, self._replies, self._dropped, self._snapshots, self._evicted):
            each.pop(session, None)

    def when_durable(self, callback: DurableCallback) -> None:
        callback(None)

    def close(self) -> None: ...


def _digest(request_id: str) -> bytes:
    return blake2b(request_id.encode(), digest_size=DIGEST_BYTES).digest()


def _size(replies: dict[str, bytes]) -> int:
    return sum(map(len, replies.values()))
