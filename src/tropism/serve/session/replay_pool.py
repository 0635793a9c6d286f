"""Thread pools for replays, so that steps never wait for them."""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tropism.errors import ServerError
from tropism.serve.session.environment import THREAD_NAME_PREFIX, ServedEnvironment, in_thread

REPLAY_THREADS = 4
MAX_WAITING = 64  # replays of each kind, including the running ones
WAITING_SHARE, THREADS_SHARE = 4, 2  # a token may use one part of this many, if there are several tokens

T = TypeVar("T")


class ReplayPool:
    """Runs functions whose cost grows with the length of an episode.

    Episodes with processes of their own mostly wait, some for minutes, so each has a thread; the others share a few.
    With several tokens, the owner of one can use only a share of the threads and of the queue.
    """

    def __init__(self, tokens: int = 0) -> None:
        self._executors = {
            isolated: _executor(MAX_WAITING if isolated else REPLAY_THREADS) for isolated in (False, True)
        }
        self._has_shares = tokens > 1
        self._waiting: Counter[tuple[bool, str]] = Counter()  # by kind and owner
        self._turns: dict[tuple[bool, str], asyncio.Semaphore] = {}  # of owners who have replays

    async def run(self, environment: ServedEnvironment, owner: str, function: Callable[..., T], *arguments: Any) -> T:
        isolated = environment.env.traits.isolated
        key = (isolated, owner)
        self._check_space(key)
        self._waiting[key] += 1
        try:
            async with self._turns.setdefault(key, asyncio.Semaphore(self._threads_per_owner(isolated))):
                return await in_thread(self._executors[isolated], function, *arguments)
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._turns[key]

    def _check_space(self, key: tuple[bool, str]) -> None:
        limit = MAX_WAITING // WAITING_SHARE
        if self._has_shares and self._waiting[key] >= limit:
            raise ServerError("QUOTA_REACHED", f"{limit} episodes of this token are being replayed; try again later")
        if sum(count for (isolated, _), count in self._waiting.items() if isolated == key[0]) >= MAX_WAITING:
            raise ServerError("CAPACITY_REACHED", "too many episodes are being replayed; try again later")

    def _threads_per_owner(self, isolated: bool) -> int:
        threads = MAX_WAITING if isolated else REPLAY_THREADS
        return threads // THREADS_SHARE if self._has_shares else threads

    def stop(self) -> None:
        for executor in self._executors.values():
            executor.shutdown(wait=False, cancel_futures=True)


def _executor(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix=f"{THREAD_NAME_PREFIX}-replay")
