"""Sessions as a server keeps them: opened, found again, counted, put away when idle."""

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
from tropism.serve import errors as refusal
from tropism.serve.inspect.replay_pool import Replays
from tropism.serve.recordings.protocol import NoRecordings, Recordings
from tropism.serve.session.environment import MOST_THREADS, THREADS, ServedEnvironment, in_thread
from tropism.serve.session.json_form import state_json
from tropism.serve.session.live import ServedSession
from tropism.serve.settings import Settings
from tropism.serve.storage.memory import MemoryStore
from tropism.serve.storage.protocol import Entry, Owned, Store, settled

MOST_LISTED = 200

log = logging.getLogger("tropism.serve")


class Sessions:
    """Every session of one server; a caller finds only those of its own token."""

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
        self.store.lost = self._lose
        self.recordings = recordings or NoRecordings()
        self.threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix=THREADS)
        self.replays = Replays()
        self.leaves: Callable[[ServedSession], None] = lambda _: None  # called when one is live no more
        self.opened = 0
        self._live: dict[str, ServedSession] = {}
        self._by_owner: dict[str, int] = {}
        self._places = threading.Lock()  # a fork may come from a thread
        self._closing: set[asyncio.Future[None]] = set()  # what was lost, once nobody is at it
        self._taken = 0
        self.stopping = False
        self._moving: dict[str, asyncio.Event] = {}  # sessions being put away or taken up again

    def __len__(self) -> int:
        """Sessions that are open or being opened."""
        return self._taken

    async def open(self, environment: ServedEnvironment, owner: str) -> ServedSession:
        """A session of this environment, before its first reset."""
        self.take_place(owner)
        try:
            session = await environment.open(self.threads)
        except BaseException:
            self.free_place(owner)
            raise
        id = secrets.token_urlsafe(16)
        self.store.open(id, Owned(environment.id, environment.variant, owner))
        return self._add(ServedSession(id, environment, owner, session, self))

    def adopt(
        self, environment: ServedEnvironment, owner: str, session: Session, entries: list[Entry], parent: str | None
    ) -> ServedSession:
        """Take in a session that these entries led to, where there is a place for it; it is a fork of `parent`."""
        id = secrets.token_urlsafe(16)
        snapshot = session.snapshot()
        self.store.open(id, Owned(environment.id, environment.variant, owner))
        served = self._add(ServedSession(id, environment, owner, session, self))
        self.store.append(id, entries, snapshot, parent)
        return served

    def _add(self, served: ServedSession) -> ServedSession:
        self._live[served.id] = served
        self.opened += 1
        return served

    async def find(self, id: str, environment: ServedEnvironment, owner: str) -> ServedSession:
        """A session of this caller, taken up again where it was put away."""
        await self._at_rest(id)
        served = self._live.get(id)
        if served is None:
            with self._moves(id):
                served = await self._revive(id, environment, owner)
        elif served.environment is not environment or not hmac.compare_digest(served.owner, owner):
            raise _unknown(id, environment)
        served.used = time.monotonic()
        return served

    async def of(self, id: str, owner: str) -> ServedSession:
        """As `find`, whatever its environment."""
        await self._at_rest(id)
        served = self._live.get(id)
        environment = self._environment_of(id) if served is None else served.environment
        if environment is None:
            raise ServerError("SESSION_ERROR", f"no session {id!r} is yours; reset opens one")
        return await self.find(id, environment, owner)

    def _environment_of(self, id: str) -> ServedEnvironment | None:
        owned = self.store.whose(id)
        return None if owned is None else self.environments.get(owned.environment)

    async def _revive(self, id: str, environment: ServedEnvironment, owner: str) -> ServedSession:
        owned = self.store.whose(id)
        if owned is None or owned.environment != environment.id or not hmac.compare_digest(owned.owner, owner):
            raise _unknown(id, environment)
        self.take_place(owner)
        try:
            served = ServedSession(id, environment, owner, await environment.open(self.threads), self)
            if owned.variant != environment.variant:
                raise _otherwise(environment)
            await in_thread(self.threads, served.take_up)
            self.store.open(id, owned)
        except BaseException:
            self.free_place(owner)
            self.store.release(id)
            raise
        return self._add(served)

    @contextmanager
    def _moves(self, id: str) -> Generator[None]:
        """Who looks for this session meanwhile waits."""
        self._moving[id] = moved = asyncio.Event()
        try:
            yield
        finally:
            del self._moving[id]
            moved.set()

    async def _at_rest(self, id: str) -> None:
        while id in self._moving:
            await self._moving[id].wait()

    def take_place(self, owner: str) -> None:
        """Make room for one session, or say that there is none."""
        most, quota = self.settings.max_sessions, self.settings.max_sessions_per_token
        with self._places:
            if self.stopping:
                raise ServerError("STOPPING", "the server is stopping")
            if self._taken >= most:
                raise ServerError("CAPACITY_REACHED", f"all {most} sessions of this server are taken; try again later")
            if self._by_owner.get(owner, 0) >= quota:
                raise ServerError("QUOTA_REACHED", f"this token has {quota} sessions open; close one first")
            self._taken += 1
            self._by_owner[owner] = self._by_owner.get(owner, 0) + 1

    def free_place(self, owner: str) -> None:
        with self._places:
            self._taken -= 1
            self._by_owner[owner] -= 1
            if not self._by_owner[owner]:
                del self._by_owner[owner]

    async def close(self, served: ServedSession) -> None:
        """End a session for good; who looks for it meanwhile waits, and does not find it."""
        await self._at_rest(served.id)
        if not self._release(served):
            return
        with self._moves(served.id):
            await served.run(served.quick("close", {}), served.close)
            self.store.forget(served.id)
        await settled(self.store)

    def _lose(self, id: str) -> None:
        """What a session did could not be kept: whoever comes next takes it up from what was."""
        served = self._live.get(id)
        if served is not None:
            self._release(served)
            closing = asyncio.ensure_future(served.run(False, served.lose().close))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _release(self, served: ServedSession) -> bool:
        if self._live.pop(served.id, None) is None:
            return False
        self.free_place(served.owner)
        self.leaves(served)
        return True

    async def expire(self) -> None:
        """Put idle sessions away, for ever; one with an open socket is not idle."""
        while True:
            await asyncio.sleep(max(0.05, self.settings.idle_timeout / 4))
            before = time.monotonic() - self.settings.idle_timeout
            for served in list(self._live.values()):
                if not served.attached and not served.turns.taken and served.used < before:
                    await self.put_away(served)
                    await asyncio.sleep(0)  # others may come in between

    async def put_away(self, served: ServedSession) -> None:
        """Free a session that can be resumed; one that cannot be written down is closed."""
        with self._moves(served.id):
            try:
                snapshot = await served.run(served.quick("put away", {}), served.put_away)
                if self._release(served):
                    self._save(served.id, snapshot)
            except Exception as error:  # an edge: whatever this session does, the others expire too
                refusal.refusal(error, session_id=served.id, environment=served.environment.id)
                if self._release(served):
                    self.store.release(served.id)

    def _save(self, id: str, snapshot: bytes | None) -> None:
        if snapshot is None:
            self.store.forget(id)
            return
        try:
            self.store.save(id, snapshot)
        except ServerError as error:  # what was acknowledged is kept as it is
            log.error("%s", error.message, extra={"session_id": id})
            self.store.release(id)

    async def drain(self) -> None:
        """Open no more sessions, and wait until no step is under way."""
        self.stopping = True
        for served in list(self._live.values()):
            await served.turns.idle()

    def stop(self) -> None:
        for served in list(self._live.values()):
            self._release(served)
            self.store.release(served.id)
            served.session.close()
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.replays.stop()
        self.recordings.close()
        self.store.close()

    def rows(self, owner: str) -> dict[str, Any]:
        """The live sessions of one caller, for people: those used last."""
        own = self._of(owner)
        latest = nlargest(MOST_LISTED, own, key=lambda served: served.used)
        return {"count": len(own), "sessions": [_row(served) for served in latest]}

    def is_live(self, id: str) -> bool:
        return id in self._live

    def seen(self, view: str, owner: str) -> ServedSession:
        """The live session that this caller may look at by this name."""
        for served in self._of(owner):
            if served.view == view:
                return served
        raise ServerError("SESSION_ERROR", f"no live session of yours has the view {shorten(view)}")

    def _of(self, owner: str) -> list[ServedSession]:
        return [served for served in list(self._live.values()) if hmac.compare_digest(served.owner, owner)]


def _row(served: ServedSession) -> dict[str, Any]:
    return {
        "view": served.view,  # whoever knows the id may step
        "environment": served.environment.id,
        "lifecycle": served.session.lifecycle.value,
        "attached": served.attached > 0,
        "total_reward": served.session.total_reward,
        "age": time.monotonic() - served.opened,
        "idle": time.monotonic() - served.used,
        **state_json(served.session),
    }


def _unknown(id: str, environment: ServedEnvironment) -> ServerError:
    instead = "to open a new one, reset and leave out the header X-Session-Id, or the session_id of a socket"
    return ServerError("SESSION_ERROR", f"no session {shorten(id)} of {environment.id} is yours; {instead}")


def _otherwise(environment: ServedEnvironment) -> DivergedError:
    message = f"this session is of {environment.id} made with other arguments or params than those served now"
    return DivergedError("session", environment.variant, "an environment made as it was", message)
