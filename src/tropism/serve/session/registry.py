"""The sessions of a server: opens, finds, counts and evicts them."""

import asyncio
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from heapq import nlargest
from typing import Any

from tropism.core.session.session import Session
from tropism.errors import DivergedError, ServerError, shorten
from tropism.serve import errors
from tropism.serve.recordings.protocol import NoRecordings, Recordings
from tropism.serve.session.environment import MAX_THREADS, THREAD_NAME_PREFIX, ServedEnvironment, in_thread
from tropism.serve.session.json_form import session_state
from tropism.serve.session.live import LiveSession
from tropism.serve.session.replay_pool import ReplayPool
from tropism.serve.settings import Settings
from tropism.serve.storage.memory import MemoryStore
from tropism.serve.storage.protocol import Entry, SessionRecord, Store, wait_durable

MAX_LISTED = 200

log = logging.getLogger("tropism.serve")


class SessionRegistry:
    """All sessions of one server; a caller can access only those of its own token."""

    def __init__(
        self,
        environments: dict[str, ServedEnvironment],
        settings: Settings,
        store: Store | None = None,
        recordings: Recordings | None = None,
    ):
        self.environments = environments
        self.settings = settings
        self.store = store or MemoryStore()
        self.store.on_lost = self._evict_lost
        self.recordings = recordings or NoRecordings()
        self.threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix=THREAD_NAME_PREFIX)
        self.replay_pool = ReplayPool()
        self.on_removed: Callable[[LiveSession], None] = lambda _: None
        self.opened_count = 0
        self._live: dict[str, LiveSession] = {}
        self._slots_by_owner: dict[str, int] = {}
        self._slots_lock = threading.Lock()  # forks reserve slots from threads
        self._closing: set[asyncio.Future[None]] = set()  # lost sessions that wait for their running request
        self._slots_used = 0
        self.stopping = False
        self._transitions: dict[str, asyncio.Event] = {}  # sessions being evicted, resumed or closed

    def __len__(self) -> int:
        """The number of sessions that are open or being opened."""
        return self._slots_used

    async def open(self, environment: ServedEnvironment, owner: str) -> LiveSession:
        """A new session of this environment, before its first reset."""
        self.reserve_slot(owner)
        try:
            session = await environment.open(self.threads)
        except BaseException:
            self.release_slot(owner)
            raise
        id = secrets.token_urlsafe(16)
        self.store.open(id, SessionRecord(environment.id, environment.variant, owner))
        return self._add(LiveSession(id, environment, owner, session, self))

    def add_fork(
        self, environment: ServedEnvironment, owner: str, session: Session, entries: list[Entry], parent: str | None
    ) -> LiveSession:
        """Register a fork of `parent`, in a slot already reserved; `entries` led to it."""
        id = secrets.token_urlsafe(16)
        snapshot = session.snapshot()
        self.store.open(id, SessionRecord(environment.id, environment.variant, owner))
        live = self._add(LiveSession(id, environment, owner, session, self))
        self.store.append(id, entries, snapshot, parent)
        return live

    def _add(self, live: LiveSession) -> LiveSession:
        self._live[live.id] = live
        self.opened_count += 1
        return live

    async def find(self, id: str, environment: ServedEnvironment, owner: str) -> LiveSession:
        """A session of this caller, resumed if it was evicted."""
        await self._wait_for_transition(id)
        live = self._live.get(id)
        if live is None:
            with self._transition(id):
                live = await self._resume(id, environment, owner)
        elif live.environment is not environment or not hmac.compare_digest(live.owner, owner):
            raise _unknown_session(id, environment)
        live.used_at = time.monotonic()
        return live

    async def find_in_any_environment(self, id: str, owner: str) -> LiveSession:
        """As `find`, in any environment."""
        await self._wait_for_transition(id)
        live = self._live.get(id)
        environment = self._environment_of(id) if live is None else live.environment
        if environment is None:
            raise ServerError("SESSION_ERROR", f"no session {id!r} is yours; reset opens one")
        return await self.find(id, environment, owner)

    def _environment_of(self, id: str) -> ServedEnvironment | None:
        record = self.store.lookup(id)
        return None if record is None else self.environments.get(record.environment)

    async def _resume(self, id: str, environment: ServedEnvironment, owner: str) -> LiveSession:
        record = self.store.lookup(id)
        if record is None or record.environment != environment.id or not hmac.compare_digest(record.owner, owner):
            raise _unknown_session(id, environment)
        self.reserve_slot(owner)
        try:
            live = LiveSession(id, environment, owner, await environment.open(self.threads), self)
            if record.variant != environment.variant:
                raise _variant_error(environment)
            await in_thread(self.threads, live.resume)
            self.store.open(id, record)
        except BaseException:
            self.release_slot(owner)
            self.store.release(id)
            raise
        return self._add(live)

    @contextmanager
    def _transition(self, id: str) -> Generator[None]:
        """Lookups of this session wait until the block ends."""
        self._transitions[id] = finished = asyncio.Event()
        try:
            yield
        finally:
            del self._transitions[id]
            finished.set()

    async def _wait_for_transition(self, id: str) -> None:
        while id in self._transitions:
            await self._transitions[id].wait()

    def reserve_slot(self, owner: str) -> None:
        """Reserve one session slot, or raise if the server or the owner has none left."""
        limit, quota = self.settings.max_sessions, self.settings.max_sessions_per_token
        with self._slots_lock:
            if self.stopping:
                raise ServerError("STOPPING", "the server is stopping")
            if self._slots_used >= limit:
                raise ServerError(
                    "CAPACITY_REACHED", f"all {limit} sessions of this server are in use; try again later"
                )
            if self._slots_by_owner.get(owner, 0) >= quota:
                raise ServerError("QUOTA_REACHED", f"this token has {quota} sessions open; close one first")
            self._slots_used += 1
            self._slots_by_owner[owner] = self._slots_by_owner.get(owner, 0) + 1

    def release_slot(self, owner: str) -> None:
        with self._slots_lock:
            self._slots_used -= 1
            self._slots_by_owner[owner] -= 1
            if not self._slots_by_owner[owner]:
                del self._slots_by_owner[owner]

    async def close(self, live: LiveSession) -> None:
        """Close a session and delete it from the store."""
        await self._wait_for_transition(live.id)
        if not self._remove(live):
            return
        with self._transition(live.id):
            await live.run(live.can_run_inline("close", {}), live.close)
            self.store.forget(live.id)
        await wait_durable(self.store)

    def _evict_lost(self, id: str) -> None:
        """Evict a session after a failed write; the next request reloads it from the store."""
        live = self._live.get(id)
        if live is not None:
            self._remove(live)
            closing = asyncio.ensure_future(live.run(False, live.evict_lost().close))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _remove(self, live: LiveSession) -> bool:
        if self._live.pop(live.id, None) is None:
            return False
        self.release_slot(live.owner)
        self.on_removed(live)
        return True

    async def evict_idle(self) -> None:
        """Evict idle sessions, in an endless loop; a session with an open socket is not idle."""
        while True:
            await asyncio.sleep(max(0.05, self.settings.idle_timeout / 4))
            before = time.monotonic() - self.settings.idle_timeout
            for live in list(self._live.values()):
                if not live.sockets and not live.lock.locked and live.used_at < before:
                    await self.evict(live)
                    await asyncio.sleep(0)  # let other requests run

    async def evict(self, live: LiveSession) -> None:
        """Store a snapshot of the session and close it; one without a snapshot is deleted."""
        with self._transition(live.id):
            try:
                snapshot = await live.run(live.can_run_inline("evict", {}), live.evict)
                if self._remove(live):
                    self._save(live.id, snapshot)
            except Exception as error:  # an error in one session must not stop the eviction of others
                errors.to_server_error(error, session_id=live.id, environment=live.environment.id)
                if self._remove(live):
                    self.store.release(live.id)

    def _save(self, id: str, snapshot: bytes | None) -> None:
        if snapshot is None:
            self.store.forget(id)
            return
        try:
            self.store.evict(id, snapshot)
        except ServerError as error:  # acknowledged entries stay in the store
            log.error("%s", error.message, extra={"session_id": id})
            self.store.release(id)

    async def drain(self) -> None:
        """Open no more sessions, and wait for running requests."""
        self.stopping = True
        for live in list(self._live.values()):
            await live.lock.wait_until_idle()

    def stop(self) -> None:
        for live in list(self._live.values()):
            self._remove(live)
            self.store.release(live.id)
            live.session.close()
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.replay_pool.stop()
        self.recordings.close()
        self.store.close()

    def rows(self, owner: str) -> dict[str, Any]:
        """The live sessions of one caller, most recently used first."""
        own = self._sessions_of(owner)
        latest = nlargest(MAX_LISTED, own, key=lambda live: live.used_at)
        return {"count": len(own), "sessions": [_row(live) for live in latest]}

    def is_live(self, id: str) -> bool:
        return id in self._live

    def find_watched(self, watch_id: str, owner: str) -> LiveSession:
        """The live session of this caller with this watch id."""
        for live in self._sessions_of(owner):
            if live.watch_id == watch_id:
                return live
        raise ServerError("SESSION_ERROR", f"no live session of yours has the view {shorten(watch_id)}")

    def _sessions_of(self, owner: str) -> list[LiveSession]:
        return [live for live in list(self._live.values()) if hmac.compare_digest(live.owner, owner)]


def _row(live: LiveSession) -> dict[str, Any]:
    return {
        "view": live.watch_id,  # not the id, which permits stepping
        "environment": live.environment.id,
        "lifecycle": live.session.lifecycle.value,
        "attached": live.sockets > 0,
        "total_reward": live.session.total_reward,
        "age": time.monotonic() - live.opened_at,
        "idle": time.monotonic() - live.used_at,
        **session_state(live.session),
    }


def _unknown_session(id: str, environment: ServedEnvironment) -> ServerError:
    instead = "to open a new one, reset and leave out the header X-Session-Id, or the session_id of a socket"
    return ServerError("SESSION_ERROR", f"no session {shorten(id)} of {environment.id} is yours; {instead}")


def _variant_error(environment: ServedEnvironment) -> DivergedError:
    message = f"this session was opened with other arguments or params of {environment.id} than those served now"
    return DivergedError("session", environment.variant, "the same arguments and params", message)
