"""What a server must not forget: the interface, and the one that keeps it in memory."""

from collections import OrderedDict
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

MOST_ENTRIES = 100_000  # of one episode; what is done after those is done, but not kept
MOST_REPLIES = 1024  # of one session; a caller repeats what was not answered, and that is recent
LARGEST_REPLIES = 2**24  # bytes, all of them
LARGE = LARGEST_REPLIES // MOST_REPLIES  # smaller ones cannot come to more
MOST_ANSWERED = 100_000  # of one episode: ids of requests whose replies are no longer kept; the oldest go first
DIGEST = 8  # bytes, of such an id
MOST_SAVED = 100_000  # evicted sessions kept in memory; the oldest go first


class Entry(Struct, frozen=True, gc=False):  # there are many, and none can lead back to itself
    """One acknowledged reset or step."""

    kind: str
    payload: Any
    reward: float
    done: bool

    def adding(self, more: dict[str, Any]) -> "Entry":
        """The same with more in its payload."""
        return Entry(self.kind, self.payload | more, self.reward, self.done)


class Kept(NamedTuple):
    """A snapshot, and the first `length` entries of `episode`, which led to it."""

    snapshot: bytes
    episode: list[Entry]
    length: int


class Saved(NamedTuple):
    """A session that was put away: enough to go on in another process."""

    environment: str
    owner: str
    snapshot: bytes


@runtime_checkable
class Store(Protocol):
    """A journal on disk has the same methods."""

    def append(self, session: str, entry: Entry) -> None:
        """Keep an entry before it is acknowledged; a reset begins the episode anew."""
        ...

    def episode(self, session: str) -> list[Entry]:
        """The first entries since the last reset, which is the first of them."""
        ...

    def remember(self, session: str, request_id: str, reply: bytes) -> None: ...

    def reply(self, session: str, request_id: str) -> bytes | None:
        """What was answered to this request, one of the last of the current episode."""
        ...

    def answered(self, session: str, request_id: str) -> bool:
        """Whether this request of the current episode was answered, and the reply is no longer kept."""
        ...

    def keep(self, session: str, snapshot_id: str, snapshot: bytes) -> None:
        """Keep a snapshot of where the current episode stands."""
        ...

    def snapshots(self, session: str) -> dict[str, Kept]: ...
    def save(self, session: str, saved: Saved) -> None: ...

    def load(self, session: str) -> Saved | None:
        """Take a saved session out."""
        ...

    def environment(self, session: str) -> str | None:
        """Of which environment a saved session is."""
        ...

    def forget(self, session: str) -> None: ...


class MemoryStore:
    """Remembers as long as the server runs."""

    def __init__(self) -> None:
        self._episodes: dict[str, list[Entry]] = {}
        self._replies: dict[str, dict[str, bytes]] = {}
        self._answered: dict[str, dict[bytes, None]] = {}  # digests, in order
        self._snapshots: dict[str, dict[str, Kept]] = {}
        self._saved: OrderedDict[str, Saved] = OrderedDict()

    def append(self, session: str, entry: Entry) -> None:
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

    def _drop(self, session: str, replies: dict[str, bytes]) -> None:
        """Let go of the oldest reply, but not of the fact that there was one."""
        oldest, answered = next(iter(replies)), self._answered.setdefault(session, {})
        del replies[oldest]
        answered[_digest(oldest)] = None
        if len(answered) > MOST_ANSWERED:
            del answered[next(iter(answered))]

    def reply(self, session: str, request_id: str) -> bytes | None:
        return self._replies.get(session, {}).get(request_id)

    def answered(self, session: str, request_id: str) -> bool:
        answered = self._answered.get(session)
        return answered is not None and _digest(request_id) in answered

    def keep(self, session: str, snapshot_id: str, snapshot: bytes) -> None:
        episode = self.episode(session)
        self._snapshots.setdefault(session, {})[snapshot_id] = Kept(snapshot, episode, len(episode))

    def snapshots(self, session: str) -> dict[str, Kept]:
        return self._snapshots.get(session, {})

    def save(self, session: str, saved: Saved) -> None:
        self._saved[session] = saved
        while len(self._saved) > MOST_SAVED:
            self.forget(next(iter(self._saved)))

    def load(self, session: str) -> Saved | None:
        return self._saved.pop(session, None)

    def environment(self, session: str) -> str | None:
        return self._saved[session].environment if session in self._saved else None

    def forget(self, session: str) -> None:
        for kept in (self._episodes, self._replies, self._answered, self._snapshots, self._saved):
            kept.pop(session, None)


def _digest(request_id: str) -> bytes:
    return blake2b(request_id.encode(), digest_size=DIGEST).digest()


def _size(replies: dict[str, bytes]) -> int:
    return sum(map(len, replies.values()))
