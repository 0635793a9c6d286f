"""The working memory of a live session: its episode, replies and snapshots."""

from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from tropism.errors import StateError
from tropism.serve.storage.protocol import MAX_ENTRIES, Entry, RequestKey

DIGEST_BYTES = 8  # of the id of a request whose reply was dropped


@dataclass(frozen=True, kw_only=True)
class SessionLimits:
    """Limits of one session."""

    max_entries: int = MAX_ENTRIES  # of the history of an episode
    max_episode_bytes: int = 2**26  # of its actions, options and uploads
    max_replies: int = 1024  # callers only repeat recent requests
    max_reply_bytes: int = 2**24
    max_dropped_ids: int = 100_000  # per episode: requests whose replies were dropped; the oldest are removed first
    max_snapshots: int = 1024
    max_snapshot_bytes: int = 2**26  # all snapshots together
    snapshot_every: int = 1000  # steps between two snapshots to replay from, for pure environments


class SavedSnapshot(NamedTuple):
    """A snapshot, and the first `length` entries of `episode`, which led to it."""

    snapshot: bytes
    episode: list[Entry]
    length: int


class WorkingMemory:
    """Built by appending the entries of the session, live or loaded from the journal."""

    __slots__ = ("_dropped", "_episode", "_limits", "_replies", "_reply_bytes", "_snapshots", "steps")

    def __init__(self, limits: SessionLimits):
        self._limits = limits
        self.steps = 0  # in the entries of the current episode
        self._episode: list[Entry] = []
        self._replies: dict[str, tuple[int, bytes]] = {}  # the digest of the request, and its reply
        self._reply_bytes = 0
        self._dropped: dict[bytes, None] = {}  # digests of ids, in order
        self._snapshots: dict[str, SavedSnapshot] = {}

    def append(self, entry: Entry) -> None:
        """A reset begins a new episode."""
        if entry.kind in ("step", "upload", "reseed"):
            if len(self._episode) < self._limits.max_entries:
                self._episode.append(entry)
                self.steps += entry.kind == "step"
        elif entry.kind == "reset":
            self._episode, self.steps = [entry], 0
            self._replies, self._reply_bytes, self._dropped = {}, 0, {}
        elif entry.kind == "snapshot":
            saved = SavedSnapshot(b64decode(entry.payload["snapshot"]), self._episode, len(self._episode))
            self._snapshots[entry.payload["id"]] = saved
        elif entry.request is not None:
            self.add_reply(entry.request, entry.payload.encode())

    def __len__(self) -> int:
        """The number of entries of the current episode."""
        return len(self._episode)

    @property
    def full(self) -> bool:
        """Whether the episode has as many entries as its history may have."""
        return len(self._episode) >= self._limits.max_entries

    @property
    def begin(self) -> Entry | None:
        """The reset of the current episode."""
        return self._episode[0] if self._episode else None

    def amend_begin(self, fields: dict[str, None]) -> None:
        """Replace fields in the payload of the reset."""
        self._episode[0] = self._episode[0].with_payload(fields)

    def entries(self) -> list[Entry]:
        """The entries of the current episode, beginning with its reset, up to a limit."""
        return list(self._episode)

    def add_reply(self, request: RequestKey, reply: bytes) -> None:
        """Keep a reply for repetitions of its request; the oldest are dropped."""
        limits, replies = self._limits, self._replies
        self._reply_bytes += len(reply) - len(replies.pop(request.request_id, (0, b""))[1])
        replies[request.request_id] = request.digest, reply
        while len(replies) > limits.max_replies or (len(replies) > 1 and self._reply_bytes > limits.max_reply_bytes):
            oldest = next(iter(replies))
            self._reply_bytes -= len(replies.pop(oldest)[1])
            self.mark_dropped(oldest)

    def mark_dropped(self, request_id: str) -> None:
        """Record that this request was answered and its reply dropped."""
        self._dropped[_digest(request_id)] = None
        if len(self._dropped) > self._limits.max_dropped_ids:
            del self._dropped[next(iter(self._dropped))]

    def reply(self, request_id: str) -> tuple[int, bytes] | None:
        """The digest of a recent request of the current episode, and its reply."""
        return self._replies.get(request_id)

    def reply_was_dropped(self, request_id: str) -> bool:
        """Whether this request of the current episode was answered and its reply has been dropped."""
        return bool(self._dropped) and _digest(request_id) in self._dropped

    @property
    def snapshot_bytes(self) -> int:
        return sum(len(each.snapshot) for each in self._snapshots.values())

    def check_room(self, snapshot: bytes) -> None:
        """Raise if the session may not have this snapshot as well."""
        limits, count = self._limits, len(self._snapshots)
        size = len(snapshot) + self.snapshot_bytes
        if count >= limits.max_snapshots or size > limits.max_snapshot_bytes:
            limit = f"{limits.max_snapshots} snapshots and {limits.max_snapshot_bytes} bytes of them"
            raise StateError("snapshots", count, f"at most {limit}", f"a session may have {limit}")

    def snapshot(self, snapshot_id: str) -> tuple[bytes, list[Entry]] | None:
        """A snapshot, and the entries that led to it."""
        saved = self._snapshots.get(snapshot_id)
        return None if saved is None else (saved.snapshot, saved.episode[: saved.length])


def snapshot_note(snapshot_id: str, snapshot: bytes) -> Entry:
    return Entry("snapshot", {"id": snapshot_id, "snapshot": b64encode(snapshot).decode()}, None, False)


def reply_note(request: RequestKey, reply: bytes) -> Entry:
    return Entry("reply", reply.decode(), None, False, request=request)


def _digest(request_id: str) -> bytes:
    return blake2b(request_id.encode(), digest_size=DIGEST_BYTES).digest()
