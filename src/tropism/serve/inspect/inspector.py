"""Inspects sessions and recordings without stepping them: histories, pictures, and forks at any step."""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

from tropism.errors import ServerError, ValidationError, shorten
from tropism.serve.inspect.follower import TimelineFollower
from tropism.serve.inspect.thumbnail import Thumbnail, thumbnail
from tropism.serve.inspect.timeline import Timeline
from tropism.serve.session.environment import ServedEnvironment, in_thread
from tropism.serve.session.fork import fork, fork_reply, replay_to_step
from tropism.serve.session.live import LiveSession
from tropism.serve.session.registry import SessionRegistry
from tropism.serve.session.replay import Source
from tropism.serve.session.requests import (
    ForkStepRequest,
    HistoryRequest,
    PictureRequest,
    RecordingsRequest,
    parse_whole_number,
)
from tropism.wire.codec import encode

MAX_TIMELINES = 32  # in the cache
MAX_TIMELINE_BYTES = 2**28  # of their rows
MAX_ROWS = 2000  # per reply
MAX_ROW_BYTES = 2**22  # per reply
MAX_PICTURE_BYTES = 2**26  # in the cache
MAX_DRAWING = 2  # concurrently
MAX_WAITING = 64  # requests for pictures and lists of recordings
MAX_THUMBNAILS_AT_ONCE = 2  # the first one of an environment compiles it
CLOSE_TIMEOUT = 2.0  # seconds that replays have to finish when the server stops

T = TypeVar("T")


class Inspector:
    """Follows the sessions and recordings of one server; can fork them, but not step them."""

    def __init__(self, sessions: SessionRegistry):
        self.sessions = sessions
        self._followers: OrderedDict[tuple[str, ...], TimelineFollower] = OrderedDict()
        self._pictures: OrderedDict[tuple[int, int, str | None], bytes] = OrderedDict()
        self._picture_bytes = self._waiting = 0
        self._drawing_slots = asyncio.Semaphore(MAX_DRAWING)
        self._thumbnail_slots = asyncio.Semaphore(MAX_THUMBNAILS_AT_ONCE)
        self._thumbnails: dict[str, asyncio.Future[Thumbnail]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        sessions.on_removed = self.drop

    def follow_session(self, watch_id: str, owner: str) -> TimelineFollower:
        """The follower of the live session of this caller with this watch id."""
        follower = self._followers.get((watch_id, owner))
        if follower is not None and follower.source.status()[0] != "closed":
            return self._touch((watch_id, owner), follower)
        return self._touch((watch_id, owner), self._new_follower(self.sessions.find_watched(watch_id, owner), owner))

    async def follow_recording(self, environment: ServedEnvironment, number: str) -> TimelineFollower:
        """The follower of a recorded episode, of any caller."""
        parsed = parse_whole_number(number)
        if parsed is None:
            raise ServerError("NOT_FOUND", f"no recording {shorten(number)}; they are numbered from 0")
        key = ("recording", environment.id, str(parsed))
        follower = self._followers.get(key)
        if follower is None:
            source = self.sessions.recordings.source(environment, parsed)
            await environment.prepare(self.sessions.threads)
            await self._limit_waiting(in_thread(self.sessions.threads, source.entries))  # raises if there is none
            follower = self._followers.get(key) or self._new_follower(
                source, ""
            )  # a concurrent request may have added one
        return self._touch(key, follower)

    def _touch(self, key: tuple[str, ...], follower: TimelineFollower) -> TimelineFollower:
        """Make this follower the most recent one in the cache."""
        previous = self._followers.get(key)
        if previous is not None and previous is not follower:
            self._close_later(previous)
        self._followers[key] = follower
        self._followers.move_to_end(key)
        sizes = [each.timeline.size for each in self._followers.values()]
        while len(self._followers) > 1 and (len(self._followers) > MAX_TIMELINES or sum(sizes) > MAX_TIMELINE_BYTES):
            self._close_later(self._followers.popitem(last=False)[1])
            del sizes[0]
        return follower

    def _new_follower(self, source: Source, owner: str) -> TimelineFollower:
        return TimelineFollower(source, owner, self.sessions.replay_pool, self.sessions.threads)

    def _close_later(self, follower: TimelineFollower) -> None:
        closing = asyncio.ensure_future(follower.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def drop(self, live: LiveSession) -> None:
        """Drop the follower of a session that is no longer live."""
        follower = self._followers.pop((live.watch_id, live.owner), None) if self._followers else None
        if follower is not None:
            self._close_later(follower)

    async def stop(self) -> None:
        """Close all followers."""
        while self._followers:
            self._close_later(self._followers.popitem()[1])
        if self._closing:
            await asyncio.wait(self._closing, timeout=CLOSE_TIMEOUT)

    async def recordings(self, environment: ServedEnvironment, request: RecordingsRequest) -> bytes:
        """The latest recordings of an environment."""
        recordings = self.sessions.recordings
        latest = in_thread(self.sessions.threads, recordings.latest, environment.id, request.before)
        rows = await self._limit_waiting(latest)
        return encode({"environment": environment.id, "count": recordings.count(environment.id), "episodes": rows})

    async def history(self, follower: TimelineFollower, request: HistoryRequest) -> bytes:
        """The rows of the current episode from `start` on."""
        start = request.start
        await follower.follow()
        timeline, (lifecycle, step_count) = follower.timeline, follower.source.status()
        begin = timeline.entries[0].payload if timeline.entries else {"seed": None, "options": None}
        return encode(
            {
                "environment": follower.source.environment.id,
                "take": timeline.version,
                "seed": None if begin["seed"] is None else str(begin["seed"]),  # exceeds the integers of JavaScript
                "options": begin["options"],
                "lifecycle": lifecycle,
                "step_count": len(timeline.rows) - 1 if timeline.full else step_count,
                "from": start,
                "rows": timeline.page(start, MAX_ROWS, MAX_ROW_BYTES),
            }
        )

    async def picture(self, follower: TimelineFollower, request: PictureRequest) -> bytes | None:
        """The picture, or an image of the observation, at a step of the current episode; None if there is none."""
        step = request.step
        if not follower.has_step(step):
            await follower.follow()
        timeline = follower.timeline
        if timeline.episode_number != follower.source.episode_number():
            raise ServerError("TIMEOUT", "the episode is still being replayed; try again later")
        if not 0 <= step < len(timeline.rows):
            raise ValidationError("step", step, f"a step of this episode: 0 to {len(timeline.rows) - 1}")
        cached = self._pictures.get((timeline.version, step, request.of))
        return cached if cached is not None else await self._draw(follower, timeline, step, request.of)

    async def _draw(self, follower: TimelineFollower, timeline: Timeline, step: int, of: str | None) -> bytes | None:
        picture = await self._limit_waiting(follower.draw(self._drawing_slots, timeline, step, of))
        if picture is not None and (timeline.version, step, of) not in self._pictures:
            self._pictures[timeline.version, step, of] = picture
            self._picture_bytes += len(picture)
            while self._picture_bytes > MAX_PICTURE_BYTES:
                self._picture_bytes -= len(self._pictures.popitem(last=False)[1])
        return picture

    async def _limit_waiting(self, work: Coroutine[Any, Any, T]) -> T:
        """Await slow work, unless too many requests already do."""
        if self._waiting >= MAX_WAITING:
            work.close()
            raise ServerError("CAPACITY_REACHED", "too many requests for pictures and recordings; try again later")
        self._waiting += 1
        try:
            return await work
        finally:
            self._waiting -= 1

    async def fork(self, follower: TimelineFollower, owner: str, request: ForkStepRequest) -> bytes:
        """Fork at a step, into a new session of the caller."""
        source = follower.source
        make_fork = partial(replay_to_step, source, request.step, request.seed)
        run, environment = self.sessions.replay_pool.run, source.environment
        if isinstance(source, LiveSession) and source.log.has_unrecorded_steps:
            await source.record()  # the recording of the fork continues that of its origin
        forked = await run(environment, owner, fork, self.sessions, environment, owner, make_fork, request.seed)
        await forked.wait_durable()
        return fork_reply(forked)

    async def thumbnail(self, environment: ServedEnvironment) -> Thumbnail:
        """A picture of an environment, drawn on the first request."""
        task = self._thumbnails.get(environment.id)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._thumbnails[environment.id] = asyncio.ensure_future(self._make_thumbnail(environment))
        return await asyncio.shield(task)

    async def _make_thumbnail(self, environment: ServedEnvironment) -> Thumbnail:
        async with self._thumbnail_slots:
            await environment.prepare(self.sessions.threads)
            return await in_thread(self.sessions.threads, thumbnail, environment)
