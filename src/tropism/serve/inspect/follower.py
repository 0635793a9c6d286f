"""One episode that is looked at: who may replay it when, and what is let go of afterwards."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar

from tropism.errors import ServerError
from tropism.serve.inspect.replay_pool import Replays
from tropism.serve.inspect.timeline import Reel, Source, drawn
from tropism.serve.session.environment import in_thread

PATIENCE = 2.0  # seconds; a replay that takes longer goes on, and what there is by then is told
LONGEST_TURN = 10.0  # seconds that a request waits for the one before

T = TypeVar("T")


class Watched:
    """An episode, as far as it was replayed; pictures of a pure environment are drawn in `threads`."""

    def __init__(self, source: Source, replays: Replays, threads: ThreadPoolExecutor):
        self.source = source
        self._replays = replays
        self._threads = threads
        self._turn = asyncio.Lock()
        self._left = False
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

    async def draw(self, gate: AbstractAsyncContextManager[Any], reel: Reel, step: int, of: str | None) -> bytes | None:
        """A picture; of a pure environment it holds up nobody who looks at the same session."""
        if not self.source.environment.env.traced:
            return await self._turn_to(gate, reel.picture, step, of)
        moment = await self._turn_to(nullcontext(), reel.at, step)
        async with gate:
            return await in_thread(self._threads, drawn, moment, of)

    async def leave(self) -> None:
        """Let go of what was replayed, when nobody is at it; whoever still comes lets go again."""
        self._left = True
        async with self._turn:
            await in_thread(self._threads, self.reel.close)

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
        try:
            async with gate:
                return await self._replays.run(call, *arguments)
        finally:
            if self._left:
                await in_thread(self._threads, self.reel.close)
