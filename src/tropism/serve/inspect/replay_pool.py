"""The few threads in which episodes are replayed, so that no step has to wait for those."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tropism.errors import ServerError
from tropism.serve.session.environment import THREADS, in_thread

AT_ONCE = 4
MOST_WAITING = 64  # replays, those under way among them

T = TypeVar("T")


class Replays:
    """Runs what takes the longer, the longer an episode is."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix=f"{THREADS}-replay")
        self._waiting = 0

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        if self._waiting >= MOST_WAITING:
            raise ServerError("CAPACITY_REACHED", "too many episodes are being replayed; try again later")
        self._waiting += 1
        try:
            return await in_thread(self._threads, function, *arguments)
        finally:
            self._waiting -= 1

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
