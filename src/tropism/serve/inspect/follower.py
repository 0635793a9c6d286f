"""Follows one episode: replays new entries on demand, one request at a time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar

from tropism.errors import ServerError
from tropism.serve.inspect.timeline import Timeline, draw_and_close
from tropism.serve.session.environment import in_thread
from tropism.serve.session.replay import Source
from tropism.serve.session.replay_pool import ReplayPool

FOLLOW_TIMEOUT = 2.0  # seconds; a longer replay continues in the background, and the reply has the rows so far
LOCK_TIMEOUT = 10.0  # seconds

T = TypeVar("T")


class TimelineFollower:
    """The timeline of an episode; pictures of a pure environment are drawn in `threads`. Replays count as those of
    `owner`; a recording has none."""

    def __init__(self, source: Source, owner: str, replay_pool: ReplayPool, threads: ThreadPoolExecutor):
        self.source = source
        self._owner = owner
        self._replay_pool = replay_pool
        self._threads = threads
        self._lock = asyncio.Lock()
        self._closed = False
        self.timeline = Timeline(source)

    async def follow(self) -> None:
        """Replay new entries; returns after `FOLLOW_TIMEOUT` even if the replay has not finished."""
        work = asyncio.ensure_future(self._run_locked(nullcontext(), self._extend))
        await asyncio.wait({work}, timeout=FOLLOW_TIMEOUT)
        if work.done():
            work.result()
        else:
            work.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _extend(self) -> None:
        """Extend the timeline to the current step; a new episode gets a new timeline."""
        # Read first: the entries may belong to a later episode than this number, never to an earlier one.
        episode_number = self.source.episode_number()
        entries = self.source.entries()
        if not self.timeline.matches(entries):
            previous, self.timeline = self.timeline, Timeline(self.source)
            previous.close()
        self.timeline.episode_number = episode_number
        self.timeline.extend(entries)

    def has_step(self, step: int) -> bool:
        """Whether this step of the current episode has been replayed."""
        return self.timeline.episode_number == self.source.episode_number() and 0 <= step < len(self.timeline.rows)

    async def draw(
        self, gate: AbstractAsyncContextManager[Any], timeline: Timeline, step: int, field: str | None
    ) -> bytes | None:
        """A picture at a step; a pure environment is drawn without holding the lock."""
        if not self.source.environment.env.pure:
            return await self._run_locked(gate, timeline.picture, step, field)
        session = await self._run_locked(nullcontext(), timeline.session_at, step)
        async with gate:
            return await in_thread(self._threads, draw_and_close, session, field)

    async def close(self) -> None:
        """Close the timeline after the running request; later requests close it again when they finish."""
        self._closed = True
        async with self._lock:
            await in_thread(self._threads, self.timeline.close)

    async def _run_locked(self, gate: AbstractAsyncContextManager[Any], call: Callable[..., T], *arguments: Any) -> T:
        """Run `call` in a thread under the lock, which is held until the call ends even if the caller is cancelled."""
        try:
            async with asyncio.timeout(LOCK_TIMEOUT):
                await self._lock.acquire()
        except TimeoutError:
            raise ServerError("TIMEOUT", "the episode is still being replayed; try again later") from None
        work = asyncio.ensure_future(self._run(gate, call, *arguments))
        work.add_done_callback(lambda _: self._lock.release())
        return await asyncio.shield(work)

    async def _run(self, gate: AbstractAsyncContextManager[Any], call: Callable[..., T], *arguments: Any) -> T:
        try:
            async with gate:
                return await self._replay_pool.run(self.source.environment, self._owner, call, *arguments)
        finally:
            if self._closed:
                await in_thread(self._threads, self.timeline.close)
