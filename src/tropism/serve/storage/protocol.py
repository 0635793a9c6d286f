"""What a server must not forget: the interface."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from tropism.errors import ServerError

MOST_ENTRIES = 100_000  # of one episode; what is done after those is done, but not told again


class Asked(NamedTuple):
    """The id of a request, and a digest of what it asks for."""

    request_id: str
    mark: int


class Entry(Struct, frozen=True, array_like=True, gc=False):  # there are many, and none can lead back to itself
    """One acknowledged reset or step, a digest of its reply, and the request it was, where that has an id."""

    kind: str
    payload: Any
    reward: float | None  # None where it was no number, and was written down
    done: bool
    digest: int = 0
    asked: Asked | None = None

    def adding(self, more: dict[str, Any]) -> "Entry":
        """The same with more in its payload."""
        return replace(self, payload=self.payload | more)


class Kept(NamedTuple):
    """A snapshot, and the first `length` entries of `episode`, which led to it."""

    snapshot: bytes
    episode: list[Entry]
    length: int


class Owned(NamedTuple):
    """Of which environment a session is, a digest of how that is made, and whose it is."""

    environment: str
    variant: str
    owner: str


class Saved(NamedTuple):
    """Enough to go on in another process: where a session stood, what it did since, and what it did last before."""

    snapshot: bytes | None
    entries: list[Entry]
    before: list[Entry]


Then = Callable[[ServerError | None], object]
Lost = Callable[[str], None]


@runtime_checkable
class Store(Protocol):
    """Nothing is to be answered before it is settled what led to the answer."""

    lost: Lost  # called with each session of which something could not be kept: it stands where it stood before

    def open(self, session: str, owned: Owned) -> None:
        """A session is live from now on."""
        ...

    def append(
        self, session: str, entries: Sequence[Entry], snapshot: bytes | None = None, parent: str | None = None, /
    ) -> None:
        """Keep entries before they are acknowledged; a reset begins the episode anew.

        A snapshot is of where the session stands after them: what was before need not be replayed. Where they cannot
        be kept, the parent that they are a fork of is lost as well, so that its caller hears of it.
        """
        ...

    def episode(self, session: str) -> list[Entry]:
        """The first entries since the last reset, which is the first of them."""
        ...

    def remember(self, session: str, request_id: str, reply: bytes) -> None:
        """Have a reply at hand that a replay of the episode gives again."""
        ...

    def keep_reply(self, session: str, request_id: str, reply: bytes) -> None:
        """As `remember`, where none does."""
        ...

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

    def save(self, session: str, snapshot: bytes) -> None:
        """Put a session away."""
        ...

    def whose(self, session: str) -> Owned | None:
        """None where no such session is kept."""
        ...

    def load(self, session: str) -> Saved | None:
        """What a session that is not live goes on from; what it remembers is at hand from now on."""
        ...

    def release(self, session: str) -> None:
        """It is live no more; what is kept stays."""
        ...

    def forget(self, session: str) -> None: ...

    def settle(self, then: Then) -> None:
        """Call this when all that was kept by now is as safe as it is promised to be, or cannot be."""
        ...

    def close(self) -> None: ...


async def settled(store: Store) -> None:
    """Return when what was kept is safe; raise where it cannot be kept."""
    safe: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def then(error: ServerError | None) -> None:
        if safe.cancelled():
            return
        if error is None:
            safe.set_result(None)
        else:
            safe.set_exception(error)

    store.settle(then)
    await safe
