"""Looking at sessions and recordings without stepping them: their past, their pictures, forks from any step."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

import msgspec

from tropism.errors import ServerError, ValidationError, shorten
from tropism.serve.asked import convert, history_from, whole_number
from tropism.serve.branch import fork, rewound
from tropism.serve.environment import ServedEnvironment, in_thread
from tropism.serve.portrait import Portrait, portrait
from tropism.serve.reel import LONGEST, Reel, Source, drawn
from tropism.serve.sessions import Sessions
from tropism.wire.codec import encode

MOST_REELS = 32  # episodes looked at lately, kept replayed
MOST_ROWS = 2000  # of a history, told at once
LARGEST_PICTURES = 2**26  # bytes, all pictures kept
DRAWN_AT_ONCE = 2
MOST_WAITING = 64  # requests for pictures and lists of recordings
PATIENCE = 2.0  # seconds; a replay that takes longer goes on, and what there is by then is told
MADE_AT_ONCE = 2  # portraits: the first of an environment compiles it
LONGEST_TURN = 10.0  # seconds that a request waits for the one before

T = TypeVar("T")


class RecordingsAsked(msgspec.Struct, forbid_unknown_fields=True):
    before: int | None = None


class PictureAsked(msgspec.Struct, forbid_unknown_fields=True):
    step: int


class ForkAsked(msgspec.Struct, forbid_unknown_fields=True):
    step: int
    seed: Any = None


class Watched:
    """One episode that is looked at, as far as it was replayed."""

    def __init__(self, source: Source, threads: ThreadPoolExecutor):
        self.source = source
        self._threads = threads
        self._turn = asyncio.Lock()
        self.reel = Reel(source)

    async def follow(self) -> None:
        """Replay what was done since somebody last looked; what takes longer than a while goes on alone."""
        work = asyncio.ensure_future(self._turn_to(nullcontext(), self._extend))
        await asyncio.wait({work}, timeout=PATIENCE)
        if work.done():
            work.result()
        else:
            work.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _extend(self) -> None:
        """Bring the reel to where the episode stands; a reel anew where it is another."""
        episode = self.source.episode()  # first: entries may be of a later episode, never of an earlier one
        entries = self.source.entries()
        if not self.reel.begins(entries):
            old, self.reel = self.reel, Reel(self.source)
            old.close()
        self.reel.episode = episode
        self.reel.extend(entries)

    def shows(self, step: int) -> bool:
        """Whether this step of the current episode was replayed already."""
        return self.reel.episode == self.source.episode() and 0 <= step < len(self.reel.rows)

    async def draw(self, gate: AbstractAsyncContextManager[Any], reel: Reel, step: int) -> bytes | None:
        """A picture; of a pure environment it holds up nobody who looks at the same session."""
        if not self.source.environment.env.traced:
            return await self._turn_to(gate, reel.picture, step)
        moment = await self._turn_to(nullcontext(), reel.at, step)
        async with gate:
            return await in_thread(self._threads, drawn, moment)

    async def _turn_to(self, gate: AbstractAsyncContextManager[Any], call: Callable[..., T], *arguments: Any) -> T:
        """Make a call in a thread; never two at a time, even where a caller gives up."""
        try:
            async with asyncio.timeout(LONGEST_TURN):
                await self._turn.acquire()
        except TimeoutError:
            raise ServerError("TIMEOUT", "the episode is still being replayed; try again later") from None
        work = asyncio.ensure_future(self._through(gate, call, *arguments))
        work.add_done_callback(lambda _: self._turn.release())
        return await asyncio.shield(work)

    async def _through(self, gate: AbstractAsyncContextManager[Any], call: Callable[..., T], *arguments: Any) -> T:
        async with gate:
            return await in_thread(self._threads, call, *arguments)

    @property
    def busy(self) -> bool:
        return self._turn.locked()


class Views:
    """What can be seen of the sessions and recordings of one server, and how to fork them, not to step them."""

    def __init__(self, sessions: Sessions):
        self.sessions = sessions
        self._watched: OrderedDict[tuple[str, ...], Watched] = OrderedDict()
        self._pictures: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._size = self._waiting = 0
        self._drawing = asyncio.Semaphore(DRAWN_AT_ONCE)
        self._making = asyncio.Semaphore(MADE_AT_ONCE)
        self._portraits: dict[str, asyncio.Future[Portrait]] = {}

    def session(self, view: str, owner: str) -> Watched:
        """The live session of this caller that has this view."""
        watched = self._watched.get((view, owner))
        if watched is not None and watched.source.standing()[0] != "closed":
            return self._watch((view, owner), watched)
        return self._watch((view, owner), Watched(self.sessions.seen(view, owner), self.sessions.threads))

    async def recording(self, environment: ServedEnvironment, number: str) -> Watched:
        """A recorded episode, whoever played it."""
        known = whole_number(number)
        if known is None:
            raise ServerError("NOT_FOUND", f"no recording {shorten(number)}; they are numbered from 0")
        place = ("recording", environment.id, str(known))
        watched = self._watched.get(place)
        if watched is None:
            source = self.sessions.recordings.source(environment, known)
            await environment.prepare(self.sessions.threads)
            await self._in_line(in_thread(self.sessions.threads, source.entries))  # or there is none
            watched = Watched(source, self.sessions.threads)
        return self._watch(place, watched)

    def _watch(self, place: tuple[str, ...], watched: Watched) -> Watched:
        """Keep what was looked at last."""
        self._watched[place] = watched
        self._watched.move_to_end(place)
        if len(self._watched) > MOST_REELS:
            _, oldest = self._watched.popitem(last=False)
            if not oldest.busy:
                oldest.reel.close()
        return watched

    async def recordings(self, environment: ServedEnvironment, data: dict[str, Any]) -> bytes:
        """The latest recordings of an environment."""
        before, recordings = convert(data, RecordingsAsked).before, self.sessions.recordings
        rows = await self._in_line(in_thread(self.sessions.threads, recordings.listed, environment.id, before))
        return encode({"environment": environment.id, "count": recordings.count(environment.id), "episodes": rows})

    async def history(self, watched: Watched, data: dict[str, Any]) -> bytes:
        """The moments of the current episode from one on."""
        start = history_from(data)
        await watched.follow()
        reel, (lifecycle, step_count) = watched.reel, watched.source.standing()
        rows = reel.rows[start : start + MOST_ROWS]
        begin = reel.entries[0].payload if reel.entries else {"seed": None, "options": None}
        return encode(
            {
                "environment": watched.source.environment.id,
                "take": reel.take,
                "seed": None if begin["seed"] is None else str(begin["seed"]),  # JavaScript has no such numbers
                "options": begin["options"],
                "lifecycle": lifecycle,
                "step_count": min(step_count, LONGEST - 1),
                "from": start,
                "rows": rows,
            }
        )

    async def picture(self, watched: Watched, data: dict[str, Any]) -> bytes | None:
        """What the environment drew at a step of the current episode; None where it draws nothing."""
        step = convert(data, PictureAsked).step
        if not watched.shows(step):
            await watched.follow()
        reel = watched.reel
        if reel.episode != watched.source.episode():
            raise ServerError("TIMEOUT", "the episode is still being replayed; try again later")
        if not 0 <= step < len(reel.rows):
            raise ValidationError("step", step, f"a step of this episode: 0 to {len(reel.rows) - 1}")
        kept = self._pictures.get((reel.take, step))
        return kept if kept is not None else await self._draw(watched, reel, step)

    async def _draw(self, watched: Watched, reel: Reel, step: int) -> bytes | None:
        picture = await self._in_line(watched.draw(self._drawing, reel, step))
        if picture is not None and (reel.take, step) not in self._pictures:
            self._pictures[reel.take, step] = picture
            self._size += len(picture)
            while self._size > LARGEST_PICTURES:
                self._size -= len(self._pictures.popitem(last=False)[1])
        return picture

    async def _in_line(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for what takes a while, where not too many do."""
        if self._waiting >= MOST_WAITING:
            work.close()
            raise ServerError("CAPACITY_REACHED", "too much is looked at at once; try again later")
        self._waiting += 1
        try:
            return await work
        finally:
            self._waiting -= 1

    async def fork(self, watched: Watched, owner: str, data: dict[str, Any]) -> bytes:
        """A new session of the caller's that goes on from this step; the other one never knows."""
        asked, source = convert(data, ForkAsked), watched.source
        branched = partial(rewound, source, asked.step, asked.seed)
        threads = self.sessions.threads
        return await in_thread(threads, fork, self.sessions, source.environment, owner, branched, asked.seed)

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
