"""The handle of an episode's process: calls, replies, and its end."""

import pickle
import threading
import weakref
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from tropism.errors import ProcessError, StateError
from tropism.isolation.fork_server import ForkServer, ProcessExit, fork_server_with

CLOSE_TIMEOUT = 5.0  # seconds that an environment has to close itself
UNSENT = object()

WorkerReply = tuple[str, Any, str]  # kind, value, and the traceback of an error
CLOSE_TIMED_OUT: WorkerReply = ("unsent", f"it did not close itself within {CLOSE_TIMEOUT} s", "")


class RemoteTraceback(Exception):  # noqa: N818  never raised: it only shows the traceback
    """The cause of an error from another process: its traceback there."""


class EpisodeProcess:
    """A process that runs one episode of an environment, one call at a time."""

    def __init__(self, name: str, modules: tuple[str, ...], env: Any):
        self.name = name
        self._server = fork_server_with(modules)
        self._channel, remote = Pipe()
        try:
            self.pid = self._server.start(remote.fileno())
        except BaseException:
            self._channel.close()
            raise
        finally:
            remote.close()
        self._lock = threading.Lock()
        self._stopped = False
        self._params: Any = UNSENT  # those that the worker has; they may be large
        self._finalizer = weakref.finalize(self, _abandon, self._server, self.pid, self._channel)
        try:
            self.call("make", None, env)
        except BaseException:
            self.kill()
            raise

    @property
    def alive(self) -> bool:
        """Whether the process runs, as far as is known."""
        return self._finalizer.alive

    def call(self, method: str, params: Any, *arguments: Any) -> Any:
        """Call a method of the environment in its process; returns or raises what it does there."""
        with self._lock:
            if not self.alive:
                message = f"the process of this episode of {self.name} has ended; call reset()"
                raise StateError("process", "ended", "call reset()", message)
            request = self._encode(method, params, arguments)
            reply = self._decode(method, self._exchange(method, request))
            self._params = params if reply[0] == "returned" else UNSENT  # after an error it is unknown what was read
        return self._result(method, reply)

    def _result(self, method: str, reply: WorkerReply) -> Any:
        kind, value, remote_traceback = reply
        if kind == "returned":
            return value
        error = value if kind == "raised" else ProcessError("process", method, "a reply", f"{self.name}: {value}")
        raise error from RemoteTraceback(remote_traceback)

    def _encode(self, method: str, params: Any, arguments: tuple[Any, ...]) -> bytes:
        changed = () if params is self._params else (params,)
        try:
            return pickle.dumps((method, changed, arguments), pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            message = f"{self.name}: the arguments of {method} cannot be pickled and sent to its process"
            raise ProcessError("process", method, "picklable arguments", message) from error

    def _exchange(self, method: str, request: bytes) -> bytes:
        try:
            self._channel.send_bytes(request)
            return self._channel.recv_bytes()
        except (EOFError, OSError):
            ending = self._reap()
        except BaseException:  # an interrupt: this reply would be taken for that to the next request
            self._reap()
            raise
        raise self._exit_error(method, ending) from (RemoteTraceback(ending.trace) if ending.trace else None)

    def _decode(self, method: str, reply: bytes) -> WorkerReply:
        try:
            return pickle.loads(reply)
        except Exception as error:
            self._reap()  # the episode has moved on by an unknown result
            message = f"{self.name}: what {method} returned cannot be unpickled in this process"
            raise ProcessError("process", method, "a picklable result", message) from error

    def _exit_error(self, method: str, ending: ProcessExit) -> ProcessError:
        reason = "was killed because it took too long" if self._stopped else ending.description
        message = (
            f"{self.name}: the process of this episode {reason} during {method}, which had no effect; "
            "the next request restores the episode if it can be replayed, and reset starts another"
        )
        return ProcessError("process", ending.code, "a process that replies", message)

    def close(self) -> None:
        """Let the environment close itself, then end the process; during a step, kill it at once."""
        if not self._lock.acquire(blocking=False):
            self._stopped = True
            self._server.kill(self.pid)  # the caller that waits for a reply gets an error
            return
        try:
            if self.alive:
                self._close()
        finally:
            self._lock.release()

    def _close(self) -> None:
        try:
            self._channel.send_bytes(self._encode("close", self._params, ()))
            reply = pickle.loads(self._channel.recv_bytes()) if self._channel.poll(CLOSE_TIMEOUT) else CLOSE_TIMED_OUT
        except (EOFError, OSError):
            return  # it has ended already
        finally:
            self._reap()
        self._result("close", reply)

    def kill(self) -> None:
        """End the process without closing the environment."""
        with self._lock:
            if self.alive:
                self._reap()

    def _reap(self) -> ProcessExit:
        self._finalizer.detach()
        self._channel.close()
        return self._server.end(self.pid)


def _abandon(server: ForkServer, pid: int, channel: Connection) -> None:
    """Called when a handle is garbage-collected: the worker ends when its channel closes."""
    channel.close()
    server.abandoned.append(pid)
