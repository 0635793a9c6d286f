"""Snapshots, restores and forks of sessions."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from typing import Any, Protocol, runtime_checkable

from msgspec.structs import replace

from tropism.core.session.session import Session
from tropism.errors import ValidationError
from tropism.serve.recordings.protocol import Recordings
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.ids import all_ids
from tropism.serve.session.json_form import session_state
from tropism.serve.session.log import SessionLog
from tropism.serve.session.quota import StoredBytes
from tropism.serve.session.replay import Source, entries_to_step, replay_to_end
from tropism.serve.session.replay_pool import ReplayPool
from tropism.serve.session.requests import ForkRequest, StepOrigin
from tropism.serve.settings import Settings
from tropism.serve.storage.protocol import Entry, Journal
from tropism.serve.storage.working_memory import WorkingMemory
from tropism.wire.codec import encode

MakeFork = Callable[[], tuple[Session, list[Entry]]]  # returns the fork and the entries that led to it


@runtime_checkable
class RegisteredSession(Protocol):
    """A session of the server's registry."""

    id: str
    session: Session
    log: SessionLog

    async def wait_durable(self) -> None: ...


@runtime_checkable
class ServerContext(Protocol):
    """The parts of the server that a session uses."""

    journal: Journal
    settings: Settings
    recordings: Recordings
    threads: ThreadPoolExecutor
    replay_pool: ReplayPool
    stored_bytes: StoredBytes

    async def make_room(self, owner: str, environment: ServedEnvironment, keep: Any = None) -> None:
        """At capacity, evict the idlest session of this owner, other than `keep`, that can be resumed."""
        ...

    def slot(self, owner: str) -> AbstractContextManager[None]:
        """Reserve one session slot, or raise if there is none left; it is released if the block raises."""
        ...

    def add_fork(
        self, environment: ServedEnvironment, owner: str, session: Session, entries: list[Entry]
    ) -> RegisteredSession:
        """Register a fork, in a slot already reserved; `entries` led to it."""
        ...

    def record_later(self, live: Any) -> None:
        """Complete the recording of a session's episode in the background."""
        ...

    def evict_lost(self, live: Any) -> None:
        """Evict this and all sessions whose last entries could not be written; the next request reloads them."""
        ...


def restore_snapshot(
    memory: WorkingMemory, environment: ServedEnvironment, snapshot_id: str
) -> tuple[Session, list[Entry]]:
    """A new session at the snapshot, and the entries that led to it."""
    saved = memory.snapshot(snapshot_id)
    if saved is None:
        raise ValidationError("from", snapshot_id, "'now', the id of a snapshot of this session, or {'step': number}")
    snapshot, entries = saved
    return Session.restore(
        snapshot, environment.env, environment.params, engine=environment.engine
    ), without_request_ids(entries)


def without_request_ids(entries: list[Entry]) -> list[Entry]:
    """The entries for another session, where their request ids were not used."""
    return [entry if entry.request is None else replace(entry, request=None) for entry in entries]


def fork_from_origin(
    source: Source, session: Session, memory: WorkingMemory, request: ForkRequest
) -> tuple[Session, list[Entry]]:
    """A new session at the requested origin, and the entries that led to it."""
    if isinstance(request.origin, StepOrigin):
        return replay_to_step(source, request.origin.step, request.seed)
    if request.origin == "now":
        return session.fork(request.seed), source.entries()
    origin, entries = restore_snapshot(memory, source.environment, request.origin)
    with closing(origin):
        return origin.fork(request.seed), entries


def replay_to_step(source: Source, step: int, seed: Any) -> tuple[Session, list[Entry]]:
    """A new session at this step of the episode, and the entries that led to it."""
    entries, environment = entries_to_step(source.entries(), step), source.environment
    # An environment that receives the episode id must be replayed with the same one.
    episode_id = entries[0].payload["episode_id"] if environment.env.traits.takes_episode_id else None
    entries[0] = entries[0].with_payload({"episode_id": episode_id})
    session = environment.new_session()
    replay_to_end(environment, session, entries, source.compare)
    if seed is None:
        return session, entries
    with closing(session):
        return session.fork(seed), entries


def fork(
    context: ServerContext, environment: ServedEnvironment, owner: str, make_fork: MakeFork, seed: Any
) -> RegisteredSession:
    """Make a fork and register it. The slot is reserved before any work is done."""
    with context.slot(owner):
        session, entries = make_fork()
        try:
            begin, *steps = without_request_ids(entries)
            number = context.recordings.record_fork(environment.id, session, begin, seed)
            begin = begin.with_payload({"episode_id": session.episode_id} | number)
            reseed = [] if seed is None else [Entry("reseed", {"seed": seed}, 0.0, False)]
            return context.add_fork(environment, owner, session, [begin, *steps, *reseed])
        except BaseException:
            session.close()
            raise


def fork_reply(fork: RegisteredSession) -> bytes:
    return encode(all_ids(fork.id) | session_state(fork.session))
