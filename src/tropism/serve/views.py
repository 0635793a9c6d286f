"""Looking at sessions without stepping them: their past, their pictures, forks from any of their steps."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

import msgspec

from tropism.errors import ServerError, StateError, ValidationError
from tropism.serve.environment import ServedEnvironment, in_thread
from tropism.serve.form import state_json
from tropism.serve.portrait import Portrait, portrait
from tropism.serve.reel import LONGEST, Reel, drawn, replayed, until
from tropism.serve.served import ServedSession, convert
from tropism.serve.sessions import Sessions
from tropism.serve.store import Entry
from tropism.wire.codec import encode

MOST_REELS = 32  # episodes looked at lately, kept replayed
MOST_ROWS = 2000  # of a history, told at once
LARGEST_PICTURES = 2**26  # bytes, all pictures kept
DRAWN_AT_ONCE = 2
MOST_WAITING = 64  # requests for pictures
PATIENCE = 2.0  # seconds; a replay that takes longer goes on, and what there is by then is told
MADE_AT_ONCE = 2  # portraits: the first of an environment compiles it
LONGEST_TURN = 10.0  # seconds that a request waits for the one before

T = TypeVar("T")


class HistoryAsked(msgspec.Struct, forbid_unknown_fields=True):
    start: int = msgspec.field(default=0, name="from")


class PictureAsked(msgspec.Struct, forbid_unknown_fields=True):
    step: int


class ForkAsked(msgspec.Struct, forbid_unknown_fields=True):
    step: int
    seed: Any = None


class Watched:
    """One session that is looked at, and its episode as far as it was replayed."""

    def __init__(self, served: ServedSession, sessions: Sessions):
        self.served = served
        self._sessions = sessions
        self._turn = asyncio.Lock()
        self.reel = Reel(served.environment)

    async def follow(self) -> None:
        """Replay what was done since somebody last looked; what takes longer than a while goes on alone."""
        work = asyncio.ensure_future(self._turn_to(nullcontext(), self._extending))
        await asyncio.wait({work}, timeout=PATIENCE)
        if work.done():
            work.result()
        else:
            work.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _extending(self) -> Callable[[], None]:
        """How to bring the reel to where the session stands; a reel anew where the episode is another."""
        entries = list(self._sessions.store.episode(self.served.id))
        if not entries:
            raise StateError("lifecycle", "created", "an episode", "there is nothing to see before the first reset")
        if not self.reel.begins(entries):
            old, self.reel = self.reel, Reel(self.served.environment)
            old.close()
        return partial(self.reel.extend, entries)

    async def draw(self, gate: AbstractAsyncContextManager[Any], reel: Reel, step: int) -> bytes | None:
        """A picture; of a pure environment it holds up nobody who looks at the same session."""
        if not self.served.environment.env.traced:
            return await self._turn_to(gate, lambda: partial(reel.picture, step))
        moment = await self._turn_to(nullcontext(), lambda: partial(reel.at, step))
        async with gate:
            return await in_thread(self._sessions.threads, drawn, moment)

    async def _turn_to(self, gate: AbstractAsyncContextManager[Any], prepare: Callable[[], Callable[[], T]]) -> T:
        """Prepare a call here, and make it in a thread; never two at a time, even where a caller gives up."""
        try:
            async with asyncio.timeout(LONGEST_TURN):
                await self._turn.acquire()
        except TimeoutError:
            raise ServerError("TIMEOUT", "the episode is still being replayed; try again later") from None
        work = asyncio.ensure_future(self._through(gate, prepare))
        work.add_done_callback(lambda _: self._turn.release())
        return await asyncio.shield(work)

    async def _through(self, gate: AbstractAsyncContextManager[Any], prepare: Callable[[], Callable[[], T]]) -> T:
        async with gate:
            return await in_thread(self._sessions.threads, prepare())

    @property
    def busy(self) -> bool:
        return self._turn.locked()


class Views:
    """What can be seen of the sessions of one server, by the names that allow to look and to fork, not to step."""

    def __init__(self, sessions: Sessions):
        self.sessions = sessions
        self._watched: OrderedDict[str, Watched] = OrderedDict()
        self._pictures: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._size = self._waiting = 0
        self._drawing = asyncio.Semaphore(DRAWN_AT_ONCE)
        self._making = asyncio.Semaphore(MADE_AT_ONCE)
        self._portraits: dict[str, asyncio.Future[Portrait]] = {}

    async def history(self, view: str, owner: str, data: dict[str, Any]) -> bytes:
        """The moments of the current episode from one on."""
        start = convert(data, HistoryAsked).start
        if start < 0:
            raise ValidationError("from", start, "a step number of at least 0")
        watched = self._watch(view, owner)
        await watched.follow()
        reel, session = watched.reel, watched.served.session
        rows = reel.rows[start : start + MOST_ROWS]
        begin = reel.entries[0].payload if reel.entries else {"seed": None, "options": None}
        return encode(
            {
                "environment": watched.served.environment.id,
                "take": reel.take,
                "seed": None if begin["seed"] is None else str(begin["seed"]),  # JavaScript has no such numbers
                "options": begin["options"],
                "lifecycle": session.lifecycle.value,
                "step_count": min(session.step_count, LONGEST - 1),
                "from": start,
                "rows": rows,
            }
        )

    async def picture(self, view: str, owner: str, data: dict[str, Any]) -> bytes | None:
        """What the environment drew at a step of the current episode; None where it draws nothing."""
        step = convert(data, PictureAsked).step
        watched = self._watch(view, owner)
        reel = watched.reel
        if not 0 <= step < len(reel.rows):
            await watched.follow()
            reel = watched.reel
        if not 0 <= step < len(reel.rows):
            raise ValidationError("step", step, f"a step of this episode: 0 to {len(reel.rows) - 1}")
        kept = self._pictures.get((reel.take, step))
        return kept if kept is not None else await self._draw(watched, reel, step)

    async def _draw(self, watched: Watched, reel: Reel, step: int) -> bytes | None:
        if self._waiting >= MOST_WAITING:
            raise ServerError("CAPACITY_REACHED", "too many pictures are asked for at once; try again later")
        self._waiting += 1
        try:
            picture = await watched.draw(self._drawing, reel, step)
        finally:
            self._waiting -= 1
        if picture is not None and (reel.take, step) not in self._pictures:
            self._pictures[reel.take, step] = picture
            self._size += len(picture)
            while self._size > LARGEST_PICTURES:
                self._size -= len(self._pictures.popitem(last=False)[1])
        return picture

    async def fork(self, view: str, owner: str, data: dict[str, Any]) -> bytes:
        """A new session of the caller's that goes on from this step; the other one never knows."""
        asked, origin = convert(data, ForkAsked), self.sessions.seen(view, owner)
        entries = until(list(self.sessions.store.episode(origin.id)), asked.step)
        begin, *steps = entries
        begin = begin._replace(payload=begin.payload | {"episode_id": None})
        reseeded = [] if asked.seed is None else [Entry("reseed", {"seed": asked.seed}, 0.0, False)]
        session = await in_thread(self.sessions.threads, replayed, origin.environment, [begin, *steps, *reseeded])
        try:
            twin = self.sessions.adopt(origin.environment, owner, session)
        except BaseException:
            session.close()
            raise
        begin = begin._replace(payload=begin.payload | {"episode_id": session.episode_id})
        for entry in (begin, *steps, *reseeded):
            self.sessions.store.append(twin.id, entry)
        return encode({"session_id": twin.id, "view": twin.view, **state_json(session)})

    async def portrait(self, environment: ServedEnvironment) -> Portrait:
        """A picture of an environment, made when it is first asked for."""
        made = self._portraits.get(environment.id)
        if made is None or (made.done() and (made.cancelled() or made.exception() is not None)):
            made = self._portraits[environment.id] = asyncio.ensure_future(self._make(environment))
        return await asyncio.shield(made)

    async def _make(self, environment: ServedEnvironment) -> Portrait:
        async with self._making:
            await environment.prepare(self.sessions.threads)
            return await in_thread(self.sessions.threads, portrait, environment)

    def _watch(self, view: str, owner: str) -> Watched:
        watched = self._watched.pop(view, None)
        known = watched is not None and watched.served.owner == owner and self.sessions.is_live(watched.served)
        if watched is None or not known:
            watched = Watched(self.sessions.seen(view, owner), self.sessions)
        self._watched[view] = watched
        if len(self._watched) > MOST_REELS:
            _, oldest = self._watched.popitem(last=False)
            if not oldest.busy:
                oldest.reel.close()
        return watched
