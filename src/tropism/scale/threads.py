"""Runs shards on threads of this process: for compiled environments, and for policies that wait."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tropism.core.spaces.space import check_count
from tropism.scale.shards import Job, num_cores


class Threads:
    """By default one thread per core."""

    def __init__(self, workers: int | None = None):
        self.workers = num_cores() if workers is None else check_count("workers", workers)

    def run(self, job: Job, shards: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        pool = ThreadPoolExecutor(self.workers, "tropism-shard")
        try:
            for number, future in enumerate([pool.submit(job, shard) for shard in shards]):
                yield number, future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Nothing to close: threads end with their run."""
