"""Snapshots, restores and forks of sessions."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec.structs import replace

from tropism.core.session.session import Session
from tropism.errors import StateError, ValidationError
from tropism.serve.inspect.replay_pool import ReplayPool
from tropism.serve.inspect.timeline import Source, entries_to_step, replay_entries
from tropism.serve.recordings.protocol import Recordings
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.json_form import session_state
from tropism.serve.storage.protocol import Entry, Store
from tropism.wire.codec import encode

MAX_SNAPSHOTS = 1024  # per session
MAX_SNAPSHOT_BYTES = 2**26  # per session, all snapshots together

MakeFork = Callable[[], tuple[Session, list[Entry]]]  # returns the fork and the entries that led to it


class StepOrigin(msgspec.Struct, forbid_unknown_fields=True):
    """The position after this many steps."""

    step: int


class ForkRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`origin` is the session's current position, one of its snapshots, or a step of its episode."""

    origin: str | StepOrigin = msgspec.field(default="now", name="from")
    seed: Any = None


class RestoreRequest(msgspec.Struct, forbid_unknown_fields=True):
    origin: str = msgspec.field(name="from")


@runtime_checkable
class RegisteredSession(Protocol):
    """A session of the server's registry."""

    id: str

    @property
    def watch_id(self) -> str: ...


@runtime_checkable
class ServerContext(Protocol):
    """The parts of the server that a session uses."""

    store: Store
    recordings: Recordings
    threads: ThreadPoolExecutor
    replay_pool: ReplayPool

    def reserve_slot(self, owner: str) -> None:
        """Reserve one session slot, or raise if the server or the owner has none left."""
        ...

    def release_slot(self, owner: str) -> None: ...

    def add_fork(
        self, environment: ServedEnvironment, owner: str, session: Session, entries: list[Entry], parent: str | None
    ) -> RegisteredSession:
        """Register a fork of `parent`, in a slot already reserved; `entries` led to it."""
        ...


def save_snapshot(store: Store, id: str, session: Session) -> str:
    """Store a snapshot of the session; returns the snapshot's id."""
    snapshot, saved = session.snapshot(), store.snapshots(id)
    size = len(snapshot) + sum(len(each.snapshot) for each in saved.values())
    if len(saved) >= MAX_SNAPSHOTS or size > MAX_SNAPSHOT_BYTES:
        limit = f"{MAX_SNAPSHOTS} snapshots and {MAX_SNAPSHOT_BYTES} bytes of them"
        raise StateError("snapshots", len(saved), f"at most {limit}", f"a session may have {limit}")
    snapshot_id = secrets.token_urlsafe(8)
    store.save_snapshot(id, snapshot_id, snapshot)
    return snapshot_id


def restore_snapshot(
    store: Store, id: str, environment: ServedEnvironment, snapshot_id: str
) -> tuple[Session, list[Entry]]:
    """A new session at the snapshot, and the entries that led to it."""
    saved = store.snapshots(id).get(snapshot_id)
    if saved is None:
        raise ValidationError("from", snapshot_id, "'now', the id of a snapshot of this session, or {'step': number}")
    session = Session.restore(saved.snapshot, environment.env, environment.params)
    return session, without_request_ids(saved.episode[: saved.length])


def without_request_ids(entries: list[Entry]) -> list[Entry]:
    """The entries for another session, where their request ids were not used."""
    return [entry if entry.request is None else replace(entry, request=None) for entry in entries]


def fork_from_origin(
    source: Source, session: Session, store: Store, id: str, request: ForkRequest
) -> tuple[Session, list[Entry]]:
    """A new session at the requested origin, and the entries that led to it."""
    if isinstance(request.origin, StepOrigin):
        return replay_to_step(source, request.origin.step, request.seed)
    if request.origin == "now":
        return session.fork(request.seed), source.entries()
    origin, entries = restore_snapshot(store, id, source.environment, request.origin)
    with closing(origin):
        return origin.fork(request.seed), entries


def replay_to_step(source: Source, step: int, seed: Any) -> tuple[Session, list[Entry]]:
    """A new session at this step of the episode, and the entries that led to it."""
    entries, environment = entries_to_step(source.entries(), step), source.environment
    # An environment that receives the episode id must be replayed with the same one.
    episode_id = entries[0].payload["episode_id"] if environment.env.traits.takes_episode_id else None
    entries[0] = entries[0].with_payload({"episode_id": episode_id})
    session = replay_entries(environment, entries, environment.new_session())
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
    context: ServerContext,
    environment: ServedEnvironment,
    owner: str,
    make_fork: MakeFork,
    seed: Any,
    parent: str | None = None,
) -> bytes:
    """Make a fork and register it; returns the reply. The slot is reserved before any work is done."""
    context.reserve_slot(owner)
    try:
        session, entries = make_fork()
        registered = _register(context, environment, owner, session, entries, seed, parent)
    except BaseException:
        context.release_slot(owner)
        raise
    return encode({"session_id": registered.id, "view": registered.watch_id, **session_state(session)})


def _register(
    context: ServerContext,
    environment: ServedEnvironment,
    owner: str,
    session: Session,
    entries: list[Entry],
    seed: Any,
    parent: str | None,
) -> RegisteredSession:
    begin, *steps = without_request_ids(entries)
    try:
        number = context.recordings.record_fork(environment.id, session, begin, seed)
        begin = begin.with_payload({"episode_id": session.episode_id} | number)
        reseed = [] if seed is None else [Entry("reseed", {"seed": seed}, 0.0, False)]
        return context.add_fork(environment, owner, session, [begin, *steps, *reseed], parent)
    except BaseException:
        session.close()
        raise
