"""Sessions as a server keeps them: opened, found again, counted, put away when idle."""

import asyncio
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from heapq import nlargest
from typing import Any

from tropism.core.session import Session
from tropism.errors import ServerError, shorten
from tropism.serve import refusal
from tropism.serve.environment import MOST_THREADS, THREADS, ServedEnvironment, in_thread
from tropism.serve.recordings import NoRecordings, Recordings
from tropism.serve.replays import Replays
from tropism.serve.served import ServedSession
from tropism.serve.settings import Settings
from tropism.serve.store import Entry, MemoryStore, Saved, Store

MOST_LISTED = 200


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
        self.recordings = recordings or NoRecordings()
        self.threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix=THREADS)
        self.replays = Replays()
        self.leaves: Callable[[ServedSession], None] = lambda _: None  # called when one is live no more
        self.opened = 0
        self._live: dict[str, ServedSession] = {}
        self._by_owner: dict[str, int] = {}
        self._places = threading.Lock()  # a fork may come from a thread
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
        return self._add(environment, owner, session)

    def adopt(
        self, environment: ServedEnvironment, owner: str, session: Session, entries: list[Entry]
    ) -> ServedSession:
        """Take in a session that these entries led to, where there is a place for it."""
        id = secrets.token_urlsafe(16)
        try:
            for entry in entries:
                self.store.append(id, entry)
        except BaseException:
            self.store.forget(id)
            raise
        return self._add(environment, owner, session, id)

    def _add(
        self, environment: ServedEnvironment, owner: str, session: Session, id: str | None = None
    ) -> ServedSession:
        served = ServedSession(id or secrets.token_urlsafe(16), environment, owner, session, self)
        self._live[served.id] = served
        self.opened += 1
        return served

    async def find(self, id: str, environment: ServedEnvironment, owner: str) -> ServedSession:
        """A session of this caller, taken up again where it was put away."""
        await self._settled(id)
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
        await self._settled(id)
        served = self._live.get(id)
        kept = self.store.environment(id) if served is None else served.environment.id
        if kept is None or kept not in self.environments:
            raise ServerError("SESSION_ERROR", f"no session {id!r} is yours; reset opens one")
        return await self.find(id, self.environments[kept], owner)

    async def _revive(self, id: str, environment: ServedEnvironment, owner: str) -> ServedSession:
        saved = self.store.load(id)
        if saved is None:
            raise _unknown(id, environment)
        if saved.environment != environment.id or not hmac.compare_digest(saved.owner, owner):
            self.store.save(id, saved)
            raise _unknown(id, environment)
        try:
            self.take_place(owner)
        except ServerError:
            self.store.save(id, saved)
            raise
        try:
            session = await in_thread(
                self.threads, Session.restore, saved.snapshot, environment.env, environment.params
            )
        except BaseException:
            self.free_place(owner)
            self.store.save(id, saved)
            raise
        return self._add(environment, owner, session, id)

    @contextmanager
    def _moves(self, id: str) -> Generator[None]:
        """Who looks for this session meanwhile waits."""
        self._moving[id] = moved = asyncio.Event()
        try:
            yield
        finally:
            del self._moving[id]
            moved.set()

    async def _settled(self, id: str) -> None:
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
        """End a session for good."""
        if self._release(served):
            await served.run(served.quick("close", {}), served.close)
            self.store.forget(served.id)

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
                if not served.attached and not served.busy and served.used < before:
                    await self.put_away(served)
                    await asyncio.sleep(0)  # others may come in between

    async def put_away(self, served: ServedSession) -> None:
        """Free a session that can be resumed; one that cannot be written down is closed."""
        with self._moves(served.id):
            try:
                saved = await served.run(served.quick("put away", {}), served.put_away)
            except Exception as error:  # an edge: whatever this session does, the others expire too
                refusal.refusal(error, session_id=served.id, environment=served.environment.id)
                saved = None
            if not self._release(served):
                return
            if saved is None:
                self.store.forget(served.id)
            else:
                self.store.save(served.id, Saved(served.environment.id, served.owner, saved))

    async def drain(self) -> None:
        """Open no more sessions, and wait until no step is under way."""
        self.stopping = True
        for served in list(self._live.values()):
            await served.idle()

    def stop(self) -> None:
        for served in list(self._live.values()):
            self._release(served)
            served.session.close()
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.replays.stop()
        self.recordings.close()

    def rows(self, owner: str) -> dict[str, Any]:
        """The live sessions of one caller, for people: those used last."""
        own = self._of(owner)
        latest = nlargest(MOST_LISTED, own, key=lambda served: served.used)
        return {"count": len(own), "sessions": [served.row() for served in latest]}

    def seen(self, view: str, owner: str) -> ServedSession:
        """The live session that this caller may look at by this name."""
        for served in self._of(owner):
            if served.view == view:
                return served
        raise ServerError("SESSION_ERROR", f"no live session of yours has the view {shorten(view)}")

    def _of(self, owner: str) -> list[ServedSession]:
        return [served for served in list(self._live.values()) if hmac.compare_digest(served.owner, owner)]


def _unknown(id: str, environment: ServedEnvironment) -> ServerError:
    instead = "to open a new one, reset and leave out the header X-Session-Id, or the session_id of a socket"
    return ServerError("SESSION_ERROR", f"no session {shorten(id)} of {environment.id} is yours; {instead}")
