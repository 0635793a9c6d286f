"""The durable journal of sessions: its interface, and the entries it stores."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from tropism.errors import ServerError

MAX_ENTRIES = 100_000  # per episode; later ones are applied, but not part of its history
LEASE_SECONDS = 30.0
FORGET_AFTER = 30 * 86_400.0  # seconds
KEY_BYTES = 16
NOTES = ("snapshot", "reply")  # kinds of entries
MOVES = ("reset", "step")  # kinds of entries that a request with a known position makes
UNKNOWN_DIGEST = 0  # of the reply to an entry that was not made by a request, such as a reseed


def session_key(id: str) -> bytes:
    """The journal stores only a digest of a session's id, because the id permits stepping the session."""
    return blake2b(id.encode(), digest_size=KEY_BYTES).digest()


class RequestKey(NamedTuple):
    """The id of a request, and a digest of its content."""

    request_id: str
    digest: int


class Entry(Struct, frozen=True, array_like=True, gc=False):  # numerous, and never part of a reference cycle
    """A reset, step, upload or reseed with the digest of its reply, or a note; and its request if that had an id.

    `outcome` is what a replay of the step must not compute again, if anything.
    """

    kind: str
    payload: Any
    reward: float | None  # None if it was NaN when written as JSON
    done: bool
    reply_digest: int = UNKNOWN_DIGEST
    request: RequestKey | None = None
    outcome: Any = None

    @property
    def is_note(self) -> bool:
        """Whether this is a snapshot of the episode or a reply; a replay skips notes."""
        return self.kind in NOTES

    def with_payload(self, more: dict[str, Any]) -> "Entry":
        """A copy with further fields in its payload."""
        return replace(self, payload=self.payload | more)


class SessionRecord(NamedTuple):
    """The environment of a session, its arguments and params as JSON, and the session's owner."""

    environment: str
    variant: str
    owner: str


class RecoveryPoint(NamedTuple):
    """A snapshot (None: before the first reset), and the entries stored before and after it, in order.

    `before` may lack the middle of a very long episode, but has the last entry before the snapshot. It also has the
    entries of earlier episodes that led to their snapshots.
    """

    snapshot: bytes | None = None
    before: Sequence[Entry] = ()
    after: Sequence[Entry] = ()


class Claim(NamedTuple):
    """A worker's right to append to a session, until a later claim has a higher fencing token.

    `is_doubtful`: the last entries may be lost, because the machine or its disk failed after they were written.
    """

    key: bytes
    record: SessionRecord
    worker: str
    token: int
    point: RecoveryPoint = RecoveryPoint()
    is_doubtful: bool = False


DurableCallback = Callable[[ServerError | None], object]
WantedCallback = Callable[[bytes], object]


class Ticket:
    """The outcome of an append: pending, durable, or failed with `error`."""

    __slots__ = ("_callbacks", "error", "pending")

    def __init__(self, error: ServerError | None = None, *, pending: bool = False):
        self.error = error
        self.pending = pending
        self._callbacks: list[DurableCallback] = []

    def when_settled(self, callback: DurableCallback) -> None:
        if self.pending:
            self._callbacks.append(callback)
        else:
            callback(self.error)

    def settle(self, error: ServerError | None) -> None:
        self.pending, self.error = False, error
        waiting, self._callbacks = self._callbacks, []
        for callback in waiting:
            callback(error)


DURABLE = Ticket()  # already durable


class Journal(Protocol):
    """Stores the entries of sessions. Callers must not send a reply until the entries behind it are durable.

    Methods raise a `ServerError` if the storage fails. An append that fails revokes its claim, so that no entry is
    ever stored after a missing one.
    """

    survives_crashes: bool  # whether entries outlive this process

    @abstractmethod
    def open(self, key: bytes, record: SessionRecord, worker: str) -> Claim:
        """The claim of a new session, which is stored with its first append; any thread."""

    def add_alias(self, claim: Claim, alias: bytes, sealed_id: bytes) -> None:
        """Name a new session by an alias too, before its first append; only a shared journal stores it."""

    async def find_alias(self, alias: bytes) -> bytes | None:
        """The sealed id that is stored with this alias; None if there is none."""

    def when_wanted(self, callback: WantedCallback) -> None:
        """Set the callback, on the event loop, for sessions of this worker that another one waits for."""

    @abstractmethod
    async def claim(self, key: bytes, worker: str) -> Claim | None:
        """Load a session and lease it to this worker; None if it is not stored.

        Earlier claims of the session are revoked. Another worker whose lease is live is asked to release the session;
        fails if it does not.
        """

    @abstractmethod
    def append(self, claim: Claim, entries: Sequence[Entry], snapshot: bytes | None = None) -> Ticket:
        """Enqueue entries, all or none, and renew the lease; never blocks; any thread.

        A reset begins a new episode; entries of earlier ones are deleted unless they led to a snapshot. `snapshot` is
        the session's state after these entries, from which a replay can start. With a stale claim the ticket fails.
        """

    def when_durable(self, ticket: Ticket, callback: DurableCallback) -> None:
        """Call back on the event loop when the entries of this ticket are durable, or with its error."""
        ticket.when_settled(callback)

    async def durable(self, ticket: Ticket) -> None:
        """Return when the entries of this ticket are durable; raises its error."""
        settled: asyncio.Future[ServerError | None] = asyncio.get_running_loop().create_future()
        self.when_durable(ticket, lambda error: settled.cancelled() or settled.set_result(error))
        error = await settled
        if error is not None:
            raise error

    @abstractmethod
    async def release(self, claim: Claim, snapshot: bytes | None) -> None:
        """End the lease; `snapshot` is the session's state. Without effect if the claim is stale."""

    @abstractmethod
    async def forget(self, key: bytes) -> None:
        """Delete a session and revoke its claim."""

    @abstractmethod
    async def close(self) -> None: ...


def revoked_error() -> ServerError:
    return ServerError("JOURNAL_ERROR", "not applied: the session was reloaded or taken over meanwhile; try again")


def leased_error() -> ServerError:
    return ServerError("JOURNAL_ERROR", "another worker runs this session; try again later")
