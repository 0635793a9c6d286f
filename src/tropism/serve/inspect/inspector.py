"""Looking at sessions and recordings without stepping them: their past, their pictures, forks from any step."""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

import msgspec

from tropism.errors import ServerError, ValidationError, shorten
from tropism.serve.inspect.follower import Watched
from tropism.serve.inspect.thumbnail import Portrait, portrait
from tropism.serve.inspect.timeline import Reel, Source
from tropism.serve.session.environment import ServedEnvironment, in_thread
from tropism.serve.session.fork import fork, rewound
from tropism.serve.session.live import ServedSession
from tropism.serve.session.registry import Sessions
from tropism.serve.session.requests import convert, history_from, whole_number
from tropism.serve.storage.protocol import settled
from tropism.wire.codec import decode, encode

MOST_REELS = 32  # episodes looked at lately, kept replayed
LARGEST_REELS = 2**28  # bytes, all their rows
MOST_ROWS = 2000  # of a history, told at once
LARGEST_ROWS = 2**22  # bytes, those of one reply
LARGEST_PICTURES = 2**26  # bytes, all pictures kept
DRAWN_AT_ONCE = 2
MOST_WAITING = 64  # requests for pictures and lists of recordings
MADE_AT_ONCE = 2  # portraits: the first of an environment compiles it
LEAVING = 2.0  # seconds that replays get to end when the server stops

T = TypeVar("T")


class RecordingsAsked(msgspec.Struct, forbid_unknown_fields=True):
    before: int | None = None


class PictureAsked(msgspec.Struct, forbid_unknown_fields=True):
    step: int
    of: str | None = None


class ForkAsked(msgspec.Struct, forbid_unknown_fields=True):
    step: int
    seed: Any = None


class Views:
    """What can be seen of the sessions and recordings of one server, and how to fork them, not to step them."""

    def __init__(self, sessions: Sessions):
        self.sessions = sessions
        self._watched: OrderedDict[tuple[str, ...], Watched] = OrderedDict()
        self._pictures: OrderedDict[tuple[int, int, str | None], bytes] = OrderedDict()
        self._size = self._waiting = 0
        self._drawing = asyncio.Semaphore(DRAWN_AT_ONCE)
        self._making = asyncio.Semaphore(MADE_AT_ONCE)
        self._portraits: dict[str, asyncio.Future[Portrait]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        sessions.leaves = self.forget

    def session(self, view: str, owner: str) -> Watched:
        """The live session of this caller that has this view."""
        watched = self._watched.get((view, owner))
        if watched is not None and watched.source.standing()[0] != "closed":
            return self._watch((view, owner), watched)
        return self._watch((view, owner), self._new(self.sessions.seen(view, owner)))

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
            watched = self._watched.get(place) or self._new(source)  # another may have come in the meantime
        return self._watch(place, watched)

    def _watch(self, place: tuple[str, ...], watched: Watched) -> Watched:
        """Keep what was looked at last."""
        before = self._watched.get(place)
        if before is not None and before is not watched:
            self._leave(before)
        self._watched[place] = watched
        self._watched.move_to_end(place)
        sizes = [each.reel.size for each in self._watched.values()]
        while len(self._watched) > 1 and (len(self._watched) > MOST_REELS or sum(sizes) > LARGEST_REELS):
            self._leave(self._watched.popitem(last=False)[1])
            del sizes[0]
        return watched

    def _new(self, source: Source) -> Watched:
        return Watched(source, self.sessions.replays, self.sessions.threads)

    def _leave(self, watched: Watched) -> None:
        leaving = asyncio.ensure_future(watched.leave())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    def forget(self, served: ServedSession) -> None:
        """Nobody looks at a session that has gone."""
        watched = self._watched.pop((served.view, served.owner), None) if self._watched else None
        if watched is not None:
            self._leave(watched)

    async def stop(self) -> None:
        """Let go of everything that was replayed."""
        while self._watched:
            self._leave(self._watched.popitem()[1])
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=LEAVING)

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
        begin = reel.entries[0].payload if reel.entries else {"seed": None, "options": None}
        return encode(
            {
                "environment": watched.source.environment.id,
                "take": reel.take,
                "seed": None if begin["seed"] is None else str(begin["seed"]),  # JavaScript has no such numbers
                "options": begin["options"],
                "lifecycle": lifecycle,
                "step_count": len(reel.rows) - 1 if reel.full else step_count,
                "from": start,
                "rows": reel.told(start, MOST_ROWS, LARGEST_ROWS),
            }
        )

    async def picture(self, watched: Watched, data: dict[str, Any]) -> bytes | None:
        """The picture, or an image of the observation, at a step of the current episode; None where there is none."""
        asked = convert(data, PictureAsked)
        step = asked.step
        if not watched.shows(step):
            await watched.follow()
        reel = watched.reel
        if reel.episode != watched.source.episode():
            raise ServerError("TIMEOUT", "the episode is still being replayed; try again later")
        if not 0 <= step < len(reel.rows):
            raise ValidationError("step", step, f"a step of this episode: 0 to {len(reel.rows) - 1}")
        kept = self._pictures.get((reel.take, step, asked.of))
        return kept if kept is not None else await self._draw(watched, reel, step, asked.of)

    async def _draw(self, watched: Watched, reel: Reel, step: int, of: str | None) -> bytes | None:
        picture = await self._in_line(watched.draw(self._drawing, reel, step, of))
        if picture is not None and (reel.take, step, of) not in self._pictures:
            self._pictures[reel.take, step, of] = picture
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
        replays = self.sessions.replays
        reply = await replays.run(fork, self.sessions, source.environment, owner, branched, asked.seed)
        await settled(self.sessions.store)
        if not self.sessions.is_live(decode(reply)["session_id"]):
            raise ServerError("JOURNAL_ERROR", "not done: it could not be written")
        return reply

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
