"""What sessions remember, kept as long as the server runs."""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from tropism.serve.storage.protocol import MOST_ENTRIES, Entry, Kept, Lost, Owned, Saved, Then

MOST_REPLIES = 1024  # of one session; a caller repeats what was not answered, and that is recent
LARGEST_REPLIES = 2**24  # bytes, all of them
LARGE = LARGEST_REPLIES // MOST_REPLIES  # smaller ones cannot come to more
MOST_ANSWERED = 100_000  # of one episode: ids of requests whose replies are no longer kept; the oldest go first
DIGEST = 8  # bytes, of such an id
MOST_SAVED = 100_000  # evicted sessions kept in memory; the oldest go first


class MemoryStore:
    """Remembers as long as the server runs."""

    def __init__(self) -> None:
        self.lost: Lost = lambda _: None
        self._owned: dict[str, Owned] = {}
        self._episodes: dict[str, list[Entry]] = {}
        self._replies: dict[str, dict[str, bytes]] = {}
        self._answered: dict[str, dict[bytes, None]] = {}  # digests, in order
        self._snapshots: dict[str, dict[str, Kept]] = {}
        self._saved: OrderedDict[str, bytes] = OrderedDict()

    def open(self, session: str, owned: Owned) -> None:
        self._owned[session] = owned
        self._saved.pop(session, None)

    def append(
        self, session: str, entries: Sequence[Entry], _snapshot: bytes | None = None, _parent: str | None = None, /
    ) -> None:
        for entry in entries:
            if entry.kind == "reset":
                self._episodes[session] = [entry]
                self._replies.pop(session, None)
                self._answered.pop(session, None)
            elif len(episode := self._episodes[session]) < MOST_ENTRIES:
                episode.append(entry)

    def episode(self, session: str) -> list[Entry]:
        return self._episodes.get(session, [])

    def remember(self, session: str, request_id: str, reply: bytes) -> None:
        replies = self._replies.setdefault(session, {})
        replies[request_id] = reply
        if len(replies) > MOST_REPLIES:
            self._drop(session, replies)
        while len(reply) > LARGE and len(replies) > 1 and _size(replies) > LARGEST_REPLIES:
            self._drop(session, replies)

    def keep_reply(self, session: str, request_id: str, reply: bytes) -> None:
        self.remember(session, request_id, reply)

    def _drop(self, session: str, replies: dict[str, bytes]) -> None:
        """Let go of the oldest reply, but not of the fact that there was one."""
        oldest = next(iter(replies))
        del replies[oldest]
        self.note(session, oldest)

    def note(self, session: str, request_id: str) -> None:
        """Know that this request was answered, without its reply."""
        answered = self._answered.setdefault(session, {})
        answered[_digest(request_id)] = None
        if len(answered) > MOST_ANSWERED:
            del answered[next(iter(answered))]

    def reply(self, session: str, request_id: str) -> bytes | None:
        return self._replies.get(session, {}).get(request_id)

    def answered(self, session: str, request_id: str) -> bool:
        answered = self._answered.get(session)
        return answered is not None and _digest(request_id) in answered

    def keep(self, session: str, snapshot_id: str, snapshot: bytes) -> None:
        episode = self.episode(session)
        self.put_back(session, snapshot_id, Kept(snapshot, episode, len(episode)))

    def put_back(self, session: str, snapshot_id: str, kept: Kept) -> None:
        """Keep a snapshot that was kept elsewhere."""
        self._snapshots.setdefault(session, {})[snapshot_id] = kept

    def snapshots(self, session: str) -> dict[str, Kept]:
        return self._snapshots.get(session, {})

    def save(self, session: str, snapshot: bytes) -> None:
        self._saved[session] = snapshot
        while len(self._saved) > MOST_SAVED:
            self.forget(next(iter(self._saved)))

    def whose(self, session: str) -> Owned | None:
        return self._owned.get(session)

    def load(self, session: str) -> Saved | None:
        snapshot = self._saved.get(session)
        return None if snapshot is None else Saved(snapshot, [], [])

    def release(self, session: str) -> None:
        if session not in self._saved:
            self.forget(session)

    def forget(self, session: str) -> None:
        for kept in (self._owned, self._episodes, self._replies, self._answered, self._snapshots, self._saved):
            kept.pop(session, None)

    def settle(self, then: Then) -> None:
        then(None)

    def close(self) -> None: ...


def _digest(request_id: str) -> bytes:
    return blake2b(request_id.encode(), digest_size=DIGEST).digest()


def _size(replies: dict[str, bytes]) -> int:
    return sum(map(len, replies.values()))
