"""One thing at a time: what is done with a session in a thread is waited for by what comes after it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class Turns:
    """Costs next to nothing until somebody takes one."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock: asyncio.Lock | None = None

    @property
    def taken(self) -> bool:
        return self._lock is not None and self._lock.locked()

    def turn(self) -> asyncio.Lock:
        self._lock = self._lock or asyncio.Lock()
        return self._lock

    async def take(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do this when those before are done; a caller that gives up does not let another in."""
        turn = self.turn()
        await turn.acquire()
        done = asyncio.ensure_future(work())
        done.add_done_callback(lambda _: turn.release())
        return await asyncio.shield(done)

    async def idle(self) -> None:
        """Return when nobody has a turn."""
        if self._lock is not None:
            async with self._lock:
                return
