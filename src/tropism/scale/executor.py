"""Executors by name."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tropism.errors import ValidationError
from tropism.scale.processes import Processes
from tropism.scale.ray import Ray
from tropism.scale.shards import Executor, Job
from tropism.scale.threads import Threads

__all__ = ["Executor", "Serial", "make_executor", "use_executor"]

EXPECTED = "threads or processes (threads:N for N of them), ray, or ray://HOST:PORT"
LOCAL = {"threads": Threads, "processes": Processes}


class Serial:
    """Runs shards one after the other, in this thread."""

    def run(self, job: Job, shards: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for number, shard in enumerate(shards):
            yield number, job(shard)

    def close(self) -> None:
        """Nothing to close."""


def make_executor(on: Any) -> Executor:
    """The executor of this name; None is the serial one, and an executor is returned as it is."""
    if on is None:
        return Serial()
    if isinstance(on, Executor):
        return on
    if isinstance(on, str) and (on == "ray" or on.startswith("ray://")):
        return Ray(None if on == "ray" else on)
    kind, colon, workers = str(on).partition(":")
    if not isinstance(on, str) or kind not in LOCAL or (colon and not workers.isdecimal()):
        raise ValidationError("on", on, EXPECTED)
    return LOCAL[kind](int(workers) if colon else None)


@contextmanager
def use_executor(on: Any) -> Generator[Executor]:
    """The executor of this name, closed at the end; one that is passed as an object stays open."""
    executor = make_executor(on)
    try:
        yield executor
    finally:
        if executor is not on:
            executor.close()
