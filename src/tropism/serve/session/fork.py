"""Going on from another moment: snapshots, and forks from here, from a snapshot or from any step."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec.structs import replace

from tropism.core.session.session import Session
from tropism.errors import StateError, ValidationError
from tropism.serve.inspect.replay_pool import Replays
from tropism.serve.inspect.timeline import Source, replayed, until
from tropism.serve.recordings.protocol import Recordings
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.json_form import state_json
from tropism.serve.storage.protocol import Entry, Store
from tropism.wire.codec import encode

MOST_SNAPSHOTS = 1024  # of one session
LARGEST_SNAPSHOTS = 2**26  # bytes, all snapshots of one session

Branched = Callable[[], tuple[Session, list[Entry]]]  # a session of its own, and what had happened by then


class Step(msgspec.Struct, forbid_unknown_fields=True):
    """The moment after this many steps."""

    step: int


class ForkData(msgspec.Struct, forbid_unknown_fields=True):
    """Where to go on from: where the session is now, a snapshot of it, or a step of its episode."""

    origin: str | Step = msgspec.field(default="now", name="from")
    seed: Any = None


class RestoreData(msgspec.Struct, forbid_unknown_fields=True):
    origin: str = msgspec.field(name="from")


@runtime_checkable
class Named(Protocol):
    """A session that was taken in."""

    id: str

    @property
    def view(self) -> str: ...


@runtime_checkable
class Home(Protocol):
    """What a session needs of the server it lives in."""

    store: Store
    recordings: Recordings
    threads: ThreadPoolExecutor
    replays: Replays

    def take_place(self, owner: str) -> None:
        """Make room for one session, or say that there is none."""
        ...

    def free_place(self, owner: str) -> None: ...

    def adopt(
        self, environment: ServedEnvironment, owner: str, session: Session, entries: list[Entry], parent: str | None
    ) -> Named:
        """Take in a session that these entries led to, where there is a place for it; it is a fork of `parent`."""
        ...


def keep(store: Store, id: str, session: Session) -> str:
    """The id of a snapshot of where this session stands."""
    snapshot, kept = session.snapshot(), store.snapshots(id)
    size = len(snapshot) + sum(len(each.snapshot) for each in kept.values())
    if len(kept) >= MOST_SNAPSHOTS or size > LARGEST_SNAPSHOTS:
        limit = f"{MOST_SNAPSHOTS} snapshots and {LARGEST_SNAPSHOTS} bytes of them"
        raise StateError("snapshots", len(kept), f"at most {limit}", f"a session may keep {limit}")
    snapshot_id = secrets.token_urlsafe(8)
    store.keep(id, snapshot_id, snapshot)
    return snapshot_id


def restored(store: Store, id: str, environment: ServedEnvironment, snapshot_id: str) -> tuple[Session, list[Entry]]:
    """A session that stands where the snapshot was made, and what had happened by then."""
    kept = store.snapshots(id).get(snapshot_id)
    if kept is None:
        raise ValidationError("from", snapshot_id, "'now', the id of a snapshot of this session, or {'step': number}")
    session = Session.restore(kept.snapshot, environment.env, environment.params)
    return session, unasked(kept.episode[: kept.length])


def unasked(entries: list[Entry]) -> list[Entry]:
    """The same in another life: nobody asked for them there."""
    return [entry if entry.asked is None else replace(entry, asked=None) for entry in entries]


def branched(source: Source, session: Session, store: Store, id: str, asked: ForkData) -> tuple[Session, list[Entry]]:
    """A session of its own that goes on from where it was asked for, and what had happened by then."""
    if isinstance(asked.origin, Step):
        return rewound(source, asked.origin.step, asked.seed)
    if asked.origin == "now":
        return session.fork(asked.seed), source.entries()
    origin, entries = restored(store, id, source.environment, asked.origin)
    with closing(origin):
        return origin.fork(asked.seed), entries


def rewound(source: Source, step: int, seed: Any) -> tuple[Session, list[Entry]]:
    """A session of its own that goes on from this step of an episode, and what had happened by then."""
    entries, environment = until(source.entries(), step), source.environment
    own = entries[0].payload["episode_id"] if environment.env.takes_episode_id else None  # what it is told, is replayed
    entries[0] = entries[0].adding({"episode_id": own})
    session = replayed(environment, entries, environment.fresh())
    try:
        source.check(session)
        if seed is None:
            return session, entries
        with closing(session):
            return session.fork(seed), entries
    except BaseException:
        session.close()
        raise


def fork(
    home: Home, environment: ServedEnvironment, owner: str, make: Branched, seed: Any, parent: str | None = None
) -> bytes:
    """The reply to a fork, which becomes a session of the server's; nothing is done before there is room for it."""
    home.take_place(owner)
    try:
        session, entries = make()
        twin = _take_in(home, environment, owner, session, entries, seed, parent)
    except BaseException:
        home.free_place(owner)
        raise
    return encode({"session_id": twin.id, "view": twin.view, **state_json(session)})


def _take_in(
    home: Home,
    environment: ServedEnvironment,
    owner: str,
    session: Session,
    entries: list[Entry],
    seed: Any,
    parent: str | None,
) -> Named:
    begin, *steps = unasked(entries)
    try:
        number = home.recordings.forked(environment.id, session, begin, seed)
        begin = begin.adding({"episode_id": session.episode_id} | number)
        reseeded = [] if seed is None else [Entry("reseed", {"seed": seed}, 0.0, False)]
        return home.adopt(environment, owner, session, [begin, *steps, *reseeded], parent)
    except BaseException:
        session.close()
        raise
