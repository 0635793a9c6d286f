"""Runs shards on a Ray cluster, by actors that keep the job; one that dies is replaced (extra `ray`)."""

import importlib
import os
import socket
import warnings
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from tropism.core.spaces.space import check_count
from tropism.errors import ValidationError, require_extra
from tropism.scale.shards import Job, Queue

CONNECT_TIMEOUT = 5.0  # seconds
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}


class Ray:
    """`address` is `ray://HOST:PORT`; without one, the cluster that Ray finds, or a new one on this machine.

    By default there is one actor per CPU of the cluster. `options` are those of `ray.init`. A cluster to which the
    program is already connected is used, and stays connected.
    """

    def __init__(self, address: str | None = None, workers: int | None = None, **options: Any):
        self._workers = None if workers is None else check_count("workers", workers)
        self.replaced = 0  # actors that died and were replaced
        self.api = import_ray()
        self._connected = not self.api.is_initialized()
        if self._connected:
            _connect(self.api, address, options)

    @property
    def workers(self) -> int:
        return self._workers or max(1, int(self.api.cluster_resources().get("CPU", 1)))

    def run(self, job: Job, shards: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        try:
            stored = self.api.put(job)
        except (TypeError, AttributeError) as error:
            message = f"this cannot be sent to a Ray cluster ({error})"
            raise ValidationError("on", "ray", "picklable arguments", message) from error
        make_actor = self.api.remote(num_cpus=1, max_restarts=0)(ShardActor).remote
        actors = [make_actor(stored) for _ in range(min(self.workers, len(shards)))]
        queue, busy = Queue(shards), dict[Any, tuple[Any, int]]()
        try:
            for actor in actors:
                self._start(actor, queue, busy)
            while busy:
                reference = self.api.wait(list(busy))[0][0]
                actor, number = busy.pop(reference)
                try:
                    yield number, self.api.get(reference)
                except self.api.exceptions.RayActorError:
                    queue.put_back(number)
                    self.replaced += 1
                    actor = make_actor(stored)
                    actors.append(actor)
                except self.api.exceptions.RayTaskError as error:
                    raise error.cause from error
                self._start(actor, queue, busy)
        finally:
            for actor in actors:
                self.api.kill(actor)

    def _start(self, actor: Any, queue: Queue, busy: dict[Any, tuple[Any, int]]) -> None:
        """Let an actor run the next shard, if there is one."""
        if queue:
            number, shard = queue.take()
            busy[actor.run.remote(shard)] = actor, number

    def close(self) -> None:
        """Disconnect, and stop a cluster that was started here."""
        if self._connected:
            self.api.shutdown()
            self._connected = False


class ShardActor:
    """Runs shards of one job in a process of the cluster."""

    def __init__(self, job: Job):
        self._job = job

    def run(self, shard: Any) -> Any:
        return self._job(shard)


def import_ray() -> Any:
    require_extra("ray", 'on="ray"', "ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # otherwise Ray sends usage statistics
    return importlib.import_module("ray")


def _connect(ray: Any, address: str | None, options: dict[str, Any]) -> None:
    if address is not None:
        _check_reachable(address)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)  # Ray calls exec right after it
        try:
            ray.init(address, **QUIET | options)
        except ConnectionError as error:
            raise _no_cluster(str(address), error) from error


def _check_reachable(address: str) -> None:
    """Reject an address where nothing listens: Ray itself would try for half a minute."""
    try:
        parts = urlsplit(address)
        if parts.hostname is None or parts.port is None:
            raise ValidationError("on", address, "ray://HOST:PORT")
        socket.create_connection((parts.hostname, parts.port), CONNECT_TIMEOUT).close()
    except OSError as error:
        raise _no_cluster(address, error) from None
    except ValueError:
        raise ValidationError("on", address, "ray://HOST:PORT") from None


def _no_cluster(address: str, error: Exception) -> ValidationError:
    return ValidationError(
        "on", address, "the address of a Ray cluster", f"no Ray cluster answers at {address} ({error})"
    )
