"""The sessions of a server: opens, finds, counts and evicts them."""

import asyncio
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from heapq import nlargest, nsmallest
from typing import Any

from tropism.core.session.session import Session
from tropism.errors import ServerError, shorten
from tropism.serve import errors
from tropism.serve.recordings.protocol import Recordings
from tropism.serve.session.agents import AgentIndex
from tropism.serve.session.environment import MAX_THREADS, THREAD_NAME_PREFIX, ServedEnvironment, in_thread
from tropism.serve.session.listing import session_row
from tropism.serve.session.live import LiveSession
from tropism.serve.session.quota import StoredBytes
from tropism.serve.session.replay_pool import ReplayPool
from tropism.serve.settings import Settings
from tropism.serve.storage.memory import MemoryJournal
from tropism.serve.storage.protocol import Claim, Entry, Journal, SessionRecord, session_key

MAX_LISTED = 200
ADMIN_KINDS = ("fork", "snapshot", "restore", "history")  # these need the admin token, if there is one
RECORD_TIMEOUT = 10.0  # seconds to complete recordings when the server stops

log = logging.getLogger("tropism.serve")


class SessionRegistry:
    """All sessions of one server; a caller can access only those of its own token."""

    def __init__(
        self,
        environments: dict[str, ServedEnvironment],
        settings: Settings,
        journal: Journal | None = None,
        recordings: Recordings | None = None,
    ):
        self.environments = environments
        self.settings = settings
        self.journal = journal or MemoryJournal(max_entries=settings.session_limits.max_entries)
        self.recordings = recordings or Recordings()
        self.threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix=THREAD_NAME_PREFIX)
        self.replay_pool = ReplayPool(len(settings.accepted_tokens))
        self.stored_bytes = StoredBytes(settings.max_bytes_per_token)
        self.on_removed: Callable[[LiveSession], None] = lambda _: None
        self.opened_count = 0
        self._live: dict[str, LiveSession] = {}
        self._agents = AgentIndex(self.journal)
        self.journal.when_wanted(self._hand_over_later)
        self._slots_by_owner: dict[str, int] = {}
        self._slots_lock = threading.Lock()  # forks reserve slots from threads
        self._worker = secrets.token_hex(8)  # the name of this process in leases
        self._background: set[asyncio.Future[None]] = set()  # recordings, and the closing of lost sessions
        self._slots_used = 0
        self.stopping = False
        self._transitions: dict[str, asyncio.Event] = {}  # sessions being evicted, resumed or closed

    def __len__(self) -> int:
        """The number of sessions that are open or being opened."""
        return self._slots_used

    async def open(self, environment: ServedEnvironment, owner: str) -> LiveSession:
        """A new session of this environment, before its first reset."""
        await self.make_room(owner, environment)
        self._check_memory(environment)
        with self.slot(owner):
            return self._add(environment, owner, await environment.open(self.threads))

    def add_fork(
        self, environment: ServedEnvironment, owner: str, session: Session, entries: list[Entry]
    ) -> LiveSession:
        """Register a fork, in a slot already reserved; `entries` led to it."""
        self._check_memory(environment)
        snapshot = session.snapshot()
        live = self._add(environment, owner, session)
        live.log.begin_episode(entries, snapshot)
        return live

    def _add(self, environment: ServedEnvironment, owner: str, session: Session) -> LiveSession:
        id = secrets.token_urlsafe(16)
        record = SessionRecord(environment.id, environment.variant, owner)
        claim = self.journal.open(session_key(id), record, self._worker)
        self._agents.publish(id, claim)
        return self._register(LiveSession(id, environment, session, self, claim))

    def _register(self, live: LiveSession) -> LiveSession:
        self._live[live.id] = live
        self._agents.add(live.id)
        self.opened_count += 1
        return live

    def check_rights(self, kind: str, owner: str) -> None:
        """Raise if requests of this kind need the admin token and the caller has another one, or none."""
        if kind in ADMIN_KINDS and not self.settings.is_admin(owner):
            raise ServerError("FORBIDDEN", f"{kind} needs the admin token of this server")

    async def find_agent(self, agent_id: str) -> LiveSession:
        """The session in which an agent with this id may act."""
        id = await self._agents.find(agent_id)
        if id is None:
            raise ServerError("SESSION_ERROR", "no session has this agent id; its owner may have to resume it first")
        return await self.find(id, None, None)

    async def find(self, id: str, environment: ServedEnvironment | None, owner: str | None) -> LiveSession:
        """A session of this caller, in this or (None) any environment; resumed if it was evicted.

        The owner is None for an agent, which is identified by the session already.
        """
        await self._wait_for_transition(id)
        live = self._live.get(id)
        if live is None:
            with self._transition(id):
                live = await self._resume(id, environment, owner)
        elif environment not in (None, live.environment) or not self._may_access(live.owner, owner):
            raise errors.unknown_session_error(id, environment and environment.id)
        live.used_at = time.monotonic()
        return live

    def _may_access(self, session_owner: str, caller: str | None) -> bool:
        """Whether a caller may use a session: its owner, its agent, or the holder of the admin token."""
        if caller is None or hmac.compare_digest(session_owner, caller):
            return True
        return self.settings.admin_token is not None and self.settings.is_admin(caller)

    async def _resume(self, id: str, environment: ServedEnvironment | None, owner: str | None) -> LiveSession:
        claim = await self.journal.claim(session_key(id), self._worker)
        if claim is None:
            raise errors.unknown_session_error(id, environment and environment.id)
        try:
            found = self.environments.get(claim.record.environment)
            if found is None or environment not in (None, found) or not self._may_access(claim.record.owner, owner):
                raise errors.unknown_session_error(id, environment and environment.id)
            return await self._resume_claimed(id, found, claim)
        except BaseException:
            await self.journal.release(claim, None)
            raise

    async def _resume_claimed(self, id: str, environment: ServedEnvironment, claim: Claim) -> LiveSession:
        await self.make_room(claim.record.owner, environment)
        self._check_memory(environment)
        with self.slot(claim.record.owner):
            live = LiveSession(id, environment, await environment.open(self.threads), self, claim)
            environment.check_variant(claim.record.variant)
            await in_thread(self.threads, live.resume)
        return self._register(live)

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

    async def make_room(self, owner: str, environment: ServedEnvironment, keep: Any = None) -> None:
        """At capacity, evict the idlest session of this owner, other than `keep`, that can be resumed."""
        limit, quota = self.settings.max_sessions, self.settings.max_sessions_per_token
        no_memory = self._fills_memory(environment)
        has_slots = self._slots_used < limit and self._slots_by_owner.get(owner, 0) < quota
        if self.stopping or (has_slots and not no_memory):
            return
        found = [live for live in self._live.values() if live.owner == owner and live.is_evictable and live is not keep]
        found = [live for live in found if live.id not in self._transitions]
        found = [live for live in found if live.environment is environment or not no_memory]
        for idlest in nsmallest(1, found, key=lambda live: live.used_at):
            await self.evict(idlest)

    def _fills_memory(self, environment: ServedEnvironment) -> bool:
        limit = environment.max_sessions
        return limit is not None and sum(live.environment is environment for live in [*self._live.values()]) >= limit

    def _check_memory(self, environment: ServedEnvironment) -> None:
        """Raise if the machine has no memory for another session of this environment."""
        if self._fills_memory(environment):
            message = f"this machine has memory for {environment.max_sessions} sessions of {environment.id}"
            raise ServerError("CAPACITY_REACHED", f"{message}; try again later")

    @contextmanager
    def slot(self, owner: str) -> Generator[None]:
        """Reserve one session slot, or raise if there is none left; it is released if the block raises."""
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
        try:
            yield
        except BaseException:
            self.release_slot(owner)
            raise

    def release_slot(self, owner: str) -> None:
        with self._slots_lock:
            self._slots_used -= 1
            self._slots_by_owner[owner] -= 1
            if not self._slots_by_owner[owner]:
                del self._slots_by_owner[owner]

    async def close(self, live: LiveSession) -> int:
        """Close a session and delete it from the journal; returns the steps of its last episode."""
        step_count = live.session.step_count
        await self._wait_for_transition(live.id)
        if self._remove(live):
            self._agents.remove(live.id)
            with self._transition(live.id):
                await self._record(live)
                await live.run(live.can_run_inline("close", {}), live.close)
                await self.journal.forget(live.log.claim.key)
        return step_count

    def evict_lost(self, live: Any) -> None:
        """Evict this and all sessions whose last entries could not be written; the next request reloads them."""
        if self._live.get(live.id) is not live:
            return
        for live in [live for live in self._live.values() if live.log.ticket.error is not None]:
            self._remove(live)
            self._run_in_background(live.run(False, live.evict_lost().close))

    def record_later(self, live: LiveSession) -> None:
        """Complete the recording of a session's episode in the background."""
        self._run_in_background(self._record(live))

    async def _record(self, live: LiveSession) -> None:
        """Complete the recording of a session's episode; an error is logged."""
        if live.log.has_unrecorded_steps:
            try:
                await live.record()
            except Exception as error:  # the session goes on without its recording
                reason = errors.to_server_error(error, **live.log_context)
                log.error("an episode was not recorded: %s", reason.message, extra=live.log_context)

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _remove(self, live: LiveSession) -> bool:
        if self._live.pop(live.id, None) is None:
            return False
        self.release_slot(live.owner)
        live.log.release_bytes()
        self.on_removed(live)
        return True

    async def evict_idle(self) -> None:
        """Evict idle sessions, in an endless loop; a session with an open socket is not idle."""
        while True:
            await asyncio.sleep(max(0.05, self.settings.idle_timeout / 4))
            before = time.monotonic() - self.settings.idle_timeout
            for live in list(self._live.values()):
                if not live.sockets and not live.lock.is_locked and live.used_at < before:
                    await self.evict(live)
                    await asyncio.sleep(0)  # let other requests run

    async def evict(self, live: LiveSession) -> None:
        """Store a snapshot of the session and close it; one without a snapshot is deleted."""
        with self._transition(live.id):
            await self._record(live)
            snapshot, failed = None, False
            try:
                snapshot = await live.run(live.can_run_inline("evict", {}), live.evict)
            except Exception as error:  # an error in one session must not stop the eviction of others
                failed = True
                errors.to_server_error(error, **live.log_context)
            if self._remove(live):
                await self._release(live, snapshot, failed)

    def _hand_over_later(self, key: bytes) -> None:
        """Release a session that another worker waits for, after its running request."""
        for live in self._live.values():
            if live.log.claim.key == key and live.environment.resumable:
                self._run_in_background(self._hand_over(live))

    async def _hand_over(self, live: LiveSession) -> None:
        while live.id in self._transitions or live.lock.is_locked:
            await self._wait_for_transition(live.id)
            await live.lock.wait_until_idle()
        if self._live.get(live.id) is live:
            await self.evict(live)

    async def _release(self, live: LiveSession, snapshot: bytes | None, failed: bool) -> None:
        """Release the claim of a session; one without a snapshot is deleted unless making it `failed`."""
        try:
            if snapshot is None and not failed:
                await self.journal.forget(live.log.claim.key)
            else:
                await self.journal.release(live.log.claim, snapshot)
        except ServerError as error:  # acknowledged entries stay in the journal
            log.error("%s", error.message, extra=live.log_context)

    async def drain(self) -> None:
        """Open no more sessions, and wait for running requests."""
        self.stopping = True
        for live in list(self._live.values()):
            await live.lock.wait_until_idle()

    async def stop(self) -> None:
        """Close all sessions; recordings that take too long are completed when their session is resumed."""
        unfinished = (live for live in self._live.values() if live.log.has_unrecorded_steps)
        recording = [asyncio.ensure_future(self._record(live)) for live in unfinished]
        if recording:
            await asyncio.wait(recording, timeout=RECORD_TIMEOUT)
        for live in list(self._live.values()):
            self._remove(live)
            await self.journal.release(live.log.claim, None)
            live.session.close()
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.replay_pool.stop()
        self.recordings.close()
        await self.journal.close()

    def rows(self, owner: str) -> dict[str, Any]:
        """The live sessions of one caller, most recently used first."""
        own = self._sessions_of(owner)
        latest = nlargest(MAX_LISTED, own, key=lambda live: live.used_at)
        return {"count": len(own), "sessions": [session_row(live) for live in latest]}

    def find_watched(self, watch_id: str, owner: str) -> LiveSession:
        """The live session of this caller with this watch id."""
        for live in self._sessions_of(owner):
            if live.watch_id == watch_id:
                return live
        raise ServerError("SESSION_ERROR", f"no live session of yours has the view {shorten(watch_id)}")

    def _sessions_of(self, owner: str) -> list[LiveSession]:
        return [live for live in list(self._live.values()) if self._may_access(live.owner, owner)]
