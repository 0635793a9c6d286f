"""Jobs, the queue of their shards, and the interface of an executor."""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from tropism.errors import ProcessError

MAX_ATTEMPTS = 3  # of a shard whose worker ends

Job = Callable[[Any], Any]
"""A pure function of a shard, such as a range of episodes; it can be pickled."""


@runtime_checkable
class Executor(Protocol):
    """Runs a job on shards. A result depends on the job and its shard alone, so all executors agree."""

    def run(self, job: Job, shards: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield `(number, job(shard))` as each shard is complete, in any order; closing the iterator stops the rest.

        An error of the job is raised. The shard of a worker that ends is run again by a new worker.
        """
        ...

    def close(self) -> None: ...


class Queue:
    """The shards that have not started."""

    def __init__(self, shards: Sequence[Any]):
        self._shards = shards
        self._numbers = deque(range(len(shards)))
        self._attempts = Counter[int]()

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def take(self) -> tuple[int, Any]:
        """The number and the shard to run next."""
        number = self._numbers.popleft()
        self._attempts[number] += 1
        return number, self._shards[number]

    def put_back(self, number: int) -> None:
        """Queue a shard again after its worker has ended."""
        if self._attempts[number] >= MAX_ATTEMPTS:
            message = f"the worker of shard {self._shards[number]!r} ended {MAX_ATTEMPTS} times"
            raise ProcessError("shard", self._shards[number], "a shard that does not end its worker", message)
        self._numbers.appendleft(number)


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))
