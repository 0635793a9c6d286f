"""Runs shards in processes of this machine; one that is killed is replaced."""

import multiprocessing
import pickle
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from tropism.core.spaces.space import check_count
from tropism.errors import ProcessError, ValidationError
from tropism.isolation.process import RemoteTraceback
from tropism.scale.shards import Job, Queue, num_cores

CONTEXT = multiprocessing.get_context("spawn")  # a fork of a process that runs XLA would deadlock


class Processes:
    """By default one process per core. The job must be picklable: no lambdas, no classes inside functions."""

    def __init__(self, workers: int | None = None):
        self.workers = num_cores() if workers is None else check_count("workers", workers)
        self.replaced = 0  # workers that ended and were replaced

    def run(self, job: Job, shards: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        try:
            payload = pickle.dumps(job, pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            message = f"this cannot be sent to another process ({error}); use on='threads', or define it in a module"
            raise ValidationError("on", "processes", "picklable arguments", message) from error
        queue = Queue(shards)
        workers = [_Worker(payload) for _ in range(min(self.workers, len(shards)))]
        try:
            yield from self._run(payload, queue, workers)
        finally:
            for worker in workers:
                worker.stop()

    def _run(self, payload: bytes, queue: Queue, workers: list["_Worker"]) -> Iterator[tuple[int, Any]]:
        busy: dict[Connection, _Worker] = {}
        for worker in workers:
            busy[worker.connection] = worker.start(*queue.take())
        while busy:
            for connection in wait(list(busy)):
                worker = busy.pop(connection)  # pyright: ignore[reportArgumentType, reportCallIssue]
                result = worker.receive()
                if result is None:
                    queue.put_back(worker.number)
                    workers.remove(worker)
                    worker.stop()
                    self.replaced += 1
                    worker = _Worker(payload)
                    workers.append(worker)
                else:
                    yield worker.number, result[0]
                if queue:
                    busy[worker.connection] = worker.start(*queue.take())

    def close(self) -> None:
        """Nothing to close: processes end with their run."""


class _Worker:
    """The handle of a process."""

    def __init__(self, payload: bytes):
        self.connection, remote = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=serve_shards, args=(remote, payload), daemon=True)
        self._process.start()
        remote.close()  # otherwise the end of the process would not close the connection
        self.number = -1

    def start(self, number: int, shard: Any) -> "_Worker":
        self.number = number
        with suppress(OSError):  # the process has ended, as `receive` reports
            self.connection.send(shard)
        return self

    def receive(self) -> tuple[Any] | None:
        """The result, in a tuple; None if the process has ended."""
        try:
            kind, value, remote_traceback = self.connection.recv()
        except (EOFError, OSError):
            return None
        if kind == "returned":
            return (value,)
        raise value from RemoteTraceback(remote_traceback)

    def stop(self) -> None:
        self.connection.close()
        self._process.kill()
        self._process.join()
        self._process.close()


def serve_shards(connection: Connection, payload: bytes) -> None:
    """Run shards in a process of its own, until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the parent handles it
    job = pickle.loads(payload)
    while True:
        try:
            connection.send(_reply(job, connection.recv()))
        except (EOFError, OSError):
            return


def _reply(job: Job, shard: Any) -> tuple[str, Any, str]:
    try:
        return "returned", job(shard), ""
    except Exception as error:  # noqa: BLE001  raised again in the parent
        text = traceback.format_exc()
        return "raised", _picklable(error), text


def _picklable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  any class may fail in its own way
        return ProcessError("shard", type(error).__name__, "no error", f"{type(error).__name__}: {error}")
    return error
