"""What a server records of its sessions: the interface, and the one that records nothing."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from tropism.core.episode import Timestep
from tropism.core.session.session import Session
from tropism.errors import ServerError
from tropism.serve.inspect.timeline import Source
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.protocol import Entry

Back = Callable[[], Session]
KEY = "recording"  # in the entry of a reset: the number of the episode among the recordings


@runtime_checkable
class Recordable(Protocol):
    """What is recorded: a session of a server; `number` is that of its current episode."""

    environment: ServedEnvironment
    session: Session

    @property
    def number(self) -> int | None: ...


@runtime_checkable
class Recordings(Protocol):
    """Each call writes before it returns, or raises: then what could not be written is to be taken back.

    What `begun` and `forked` return belongs into the entry of the reset.
    """

    records: bool

    def before(self, kind: str, served: Recordable) -> Back | None:
        """How to go back if the reset or step that comes next cannot be written."""
        ...

    def begun(self, served: Recordable, options: Any, timestep: Timestep) -> dict[str, int]: ...
    def stepped(self, served: Recordable, action: Any, timestep: Timestep) -> None: ...

    def forked(self, id: str, session: Session, origin: Entry, seed: int | None) -> dict[str, int]:
        """A session of environment `id` goes on from an episode that began with `origin`."""
        ...

    def resumed(self, id: str, entries: list[Entry]) -> bool:
        """Whether the episode of these entries is recorded up to here, under the number that it has."""
        ...

    def count(self, id: str) -> int | None:
        """How many episodes of environment `id` there are; None where nothing is recorded."""
        ...

    def listed(self, id: str, before: int | None) -> list[dict[str, Any]]:
        """The latest of them, of those with a number less than `before`."""
        ...

    def source(self, environment: ServedEnvironment, number: int) -> Source: ...
    def close(self) -> None: ...


class NoRecordings:
    """Records nothing."""

    records = False

    def before(self, kind: str, served: Recordable) -> Back | None:
        return None

    def begun(self, served: Recordable, options: Any, timestep: Timestep) -> dict[str, int]:
        return {}

    def stepped(self, served: Recordable, action: Any, timestep: Timestep) -> None: ...

    def forked(self, id: str, session: Session, origin: Entry, seed: int | None) -> dict[str, int]:
        return {}

    def resumed(self, id: str, entries: list[Entry]) -> bool:
        return False

    def count(self, id: str) -> int | None:
        return None

    def listed(self, id: str, before: int | None) -> list[dict[str, Any]]:
        raise _nothing()

    def source(self, environment: ServedEnvironment, number: int) -> Source:
        raise _nothing()

    def close(self) -> None: ...


def _nothing() -> ServerError:
    return ServerError("NOT_FOUND", "this server records nothing; tropism serve --record DIR does")
