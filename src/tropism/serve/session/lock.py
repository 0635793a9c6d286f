"""A lock that serialises the requests of one session that run in threads."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class SessionLock:
    """Creates its `asyncio.Lock` on first use: most sessions never need one."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock: asyncio.Lock | None = None

    @property
    def is_locked(self) -> bool:
        return self._lock is not None and self._lock.locked()

    def lock(self) -> asyncio.Lock:
        self._lock = self._lock or asyncio.Lock()
        return self._lock

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` under the lock; if the caller is cancelled, the lock is held until `work` has finished."""
        lock = self.lock()
        await lock.acquire()
        task = asyncio.ensure_future(work())
        task.add_done_callback(lambda _: lock.release())
        return await asyncio.shield(task)

    async def wait_until_idle(self) -> None:
        if self._lock is not None:
            async with self._lock:
                return
