"""Replays an episode from its entries: resets, steps and reseeds."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, Protocol, TypeVar


class ReplayEntry(NamedTuple):
    """The arguments of a reset, the action of a step, the path and content of an uploaded file, or the seed from which
    the following steps draw.

    `expected` is what `compare` compares the result with; `outcome` is what a step must not compute again.
    """

    kind: Literal["reset", "step", "upload", "reseed"]
    value: Any
    expected: Any = None
    outcome: Any = None


class Replayable(Protocol):
    """A session, or the engine of a session."""

    @property
    def reset(self) -> Callable[..., Any]: ...
    def step(self, action: Any) -> Any: ...
    def write_file(self, path: str, data: bytes) -> None: ...
    def recall(self, outcome: Any) -> None: ...
    def reseed(self, seed: int) -> None: ...


T = TypeVar("T", bound=Replayable)
TIMESTEPS = ("reset", "step")  # kinds of entries that have a timestep


def replay(
    session: T, entries: Iterable[ReplayEntry], compare: Callable[[T, Any], object] | None = None
) -> Iterator[ReplayEntry]:
    """Apply the entries to the session, and yield each one afterwards.

    `compare(session, expected)` is called after each reset and step, and raises if the session differs.
    """
    for entry in entries:
        if entry.kind == "reset":
            session.reset(**entry.value)
        elif entry.kind == "step":
            if entry.outcome is not None:
                session.recall(entry.outcome)
            session.step(entry.value)
        elif entry.kind == "upload":
            session.write_file(*entry.value)
        else:
            session.reseed(entry.value)
        if compare is not None and entry.kind in TIMESTEPS:
            compare(session, entry.expected)
        yield entry
