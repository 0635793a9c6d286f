"""Thread pools for replays, so that steps never wait for them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tropism.errors import ServerError
from tropism.serve.session.environment import THREAD_NAME_PREFIX, ServedEnvironment, in_thread

REPLAY_THREADS = 4
MAX_WAITING = 64  # replays of each kind, including the running ones

T = TypeVar("T")


class ReplayPool:
    """Runs functions whose cost grows with the length of an episode.

    Episodes with processes of their own mostly wait, some for minutes, so each has a thread; the others share a few.
    """

    def __init__(self) -> None:
        self._executors = {
            isolated: _executor(MAX_WAITING if isolated else REPLAY_THREADS) for isolated in (False, True)
        }
        self._waiting = {False: 0, True: 0}

    async def run(self, environment: ServedEnvironment, function: Callable[..., T], *arguments: Any) -> T:
        isolated = environment.env.traits.isolated
        if self._waiting[isolated] >= MAX_WAITING:
            raise ServerError("CAPACITY_REACHED", "too many episodes are being replayed; try again later")
        self._waiting[isolated] += 1
        try:
            return await in_thread(self._executors[isolated], function, *arguments)
        finally:
            self._waiting[isolated] -= 1

    def stop(self) -> None:
        for executor in self._executors.values():
            executor.shutdown(wait=False, cancel_futures=True)


def _executor(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix=f"{THREAD_NAME_PREFIX}-replay")
