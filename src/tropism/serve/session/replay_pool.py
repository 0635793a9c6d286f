"""A small thread pool for replays, so that steps never wait for them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tropism.errors import ServerError
from tropism.serve.session.environment import THREAD_NAME_PREFIX, in_thread

REPLAY_THREADS = 4
MAX_WAITING = 64  # replays, including the running ones

T = TypeVar("T")


class ReplayPool:
    """Runs functions whose cost grows with the length of an episode."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(REPLAY_THREADS, thread_name_prefix=f"{THREAD_NAME_PREFIX}-replay")
        self._waiting = 0

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        if self._waiting >= MAX_WAITING:
            raise ServerError("CAPACITY_REACHED", "too many episodes are being replayed; try again later")
        self._waiting += 1
        try:
            return await in_thread(self._threads, function, *arguments)
        finally:
            self._waiting -= 1

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
