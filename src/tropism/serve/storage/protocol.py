"""The interface of session storage."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from tropism.errors import ServerError

MAX_ENTRIES = 100_000  # per episode; later ones are applied, but not part of its history


class RequestKey(NamedTuple):
    """The id of a request, and a digest of its content."""

    request_id: str
    digest: int


class Entry(Struct, frozen=True, array_like=True, gc=False):  # numerous, and never part of a reference cycle
    """One reset or step, the digest of its reply, and its request if that had an id."""

    kind: str
    payload: Any
    reward: float | None  # None if it was NaN when written as JSON
    done: bool
    reply_digest: int = 0
    request: RequestKey | None = None

    def with_payload(self, more: dict[str, Any]) -> "Entry":
        """A copy with further fields in its payload."""
        return replace(self, payload=self.payload | more)


class SavedSnapshot(NamedTuple):
    """A snapshot, and the first `length` entries of `episode`, which led to it."""

    snapshot: bytes
    episode: list[Entry]
    length: int


class SessionRecord(NamedTuple):
    """The environment of a session, the digest of its arguments and params, and the session's owner."""

    environment: str
    variant: str
    owner: str


class RecoveryPoint(NamedTuple):
    """A snapshot (None: before the first reset), the entries after it, and the last entry before it, if any."""

    snapshot: bytes | None
    entries: list[Entry]
    preceding: list[Entry]


DurableCallback = Callable[[ServerError | None], object]
LostCallback = Callable[[str], None]


@runtime_checkable
class Store(Protocol):
    """Callers must not send a reply until the entries behind it are durable."""

    on_lost: LostCallback  # called with each session whose entries could not be written; they are discarded

    def open(self, session: str, record: SessionRecord) -> None:
        """Mark a session as live."""
        ...

    def append(
        self, session: str, entries: Sequence[Entry], snapshot: bytes | None = None, parent: str | None = None, /
    ) -> None:
        """Append entries before they are acknowledged; a reset begins a new episode.

        `snapshot` is the session's state after them: earlier entries need not be replayed. For a fork, `parent` is
        lost as well if the write fails, so that the caller that made the fork gets the error.
        """
        ...

    def episode(self, session: str) -> list[Entry]:
        """The entries of the current episode, beginning with its reset; at most `MAX_ENTRIES`."""
        ...

    def cache_reply(self, session: str, request_id: str, reply: bytes) -> None:
        """Cache a reply that a replay of the episode reproduces."""
        ...

    def save_reply(self, session: str, request_id: str, reply: bytes) -> None:
        """Store a reply that a replay does not reproduce."""
        ...

    def reply(self, session: str, request_id: str) -> bytes | None:
        """The reply to a recent request of the current episode."""
        ...

    def reply_was_dropped(self, session: str, request_id: str) -> bool:
        """Whether this request of the current episode was answered and its reply has been dropped."""
        ...

    def save_snapshot(self, session: str, snapshot_id: str, snapshot: bytes) -> None:
        """Store a snapshot of the current state of the episode."""
        ...

    def snapshots(self, session: str) -> dict[str, SavedSnapshot]: ...

    def evict(self, session: str, snapshot: bytes) -> None:
        """Store the snapshot to resume from; the session is no longer live."""
        ...

    def lookup(self, session: str) -> SessionRecord | None:
        """None if the session is not stored."""
        ...

    def load(self, session: str) -> RecoveryPoint | None:
        """Load a session that is not live: its episode, replies and snapshots are in memory afterwards."""
        ...

    def release(self, session: str) -> None:
        """Mark a session as not live; durable data remains."""
        ...

    def forget(self, session: str) -> None: ...

    def when_durable(self, callback: DurableCallback) -> None:
        """Call back when everything written so far is durable, or with the error if it cannot be."""
        ...

    def close(self) -> None: ...


async def wait_durable(store: Store) -> None:
    """Return when everything written so far is durable, or raise if it cannot be."""
    durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def callback(error: ServerError | None) -> None:
        if durable.cancelled():
            return
        if error is None:
            durable.set_result(None)
        else:
            durable.set_exception(error)

    store.when_durable(callback)
    await durable
