"""One episode's process as this process sees it: questions, answers, and its end."""

import pickle
import threading
import weakref
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from tropism.errors import ProcessError, StateError
from tropism.isolation.fork_server import Ending, Nursery, nursery_of

CLOSING = 5.0  # seconds that an environment has to close itself
NOTHING = object()

Reply = tuple[str, Any, str]  # kind, value, and where an error has come from
LATE: Reply = ("unsent", f"it did not close itself within {CLOSING} s", "")


class ThereError(Exception):
    """The cause of an error that came from another process: the traceback it had there."""


class Child:
    """Has an environment, and lives one episode of it. One question at a time."""

    def __init__(self, name: str, modules: tuple[str, ...], env: Any):
        self.name = name
        self._nursery = nursery_of(modules)
        self._channel, theirs = Pipe()
        try:
            self.pid = self._nursery.start(theirs.fileno())
        except BaseException:
            self._channel.close()
            raise
        finally:
            theirs.close()
        self._turn = threading.Lock()
        self._stopped = False
        self._params: Any = NOTHING  # those that the child has; they may be large
        self._finalizer = weakref.finalize(self, _drop, self._nursery, self.pid, self._channel)
        try:
            self.ask("make", None, env)
        except BaseException:
            self.end()
            raise

    @property
    def alive(self) -> bool:
        """Whether there is a process to ask, as far as it is known."""
        return self._finalizer.alive

    def ask(self, call: str, params: Any, *arguments: Any) -> Any:
        """What a method of the environment returns there, or raises."""
        with self._turn:
            if not self.alive:
                words = f"the process that this episode of {self.name} lived in has ended; call reset()"
                raise StateError("process", "ended", "call reset()", words)
            request = self._request(call, params, arguments)
            reply = self._read(call, self._exchange(call, request))
            self._params = params if reply[0] == "returned" else NOTHING  # or nobody knows how much of it was read
        return self._value(call, reply)

    def _value(self, call: str, reply: Reply) -> Any:
        kind, value, there = reply
        if kind == "returned":
            return value
        error = value if kind == "raised" else ProcessError("process", call, "an answer", f"{self.name}: {value}")
        raise error from ThereError(there)

    def _request(self, call: str, params: Any, arguments: tuple[Any, ...]) -> bytes:
        known = () if params is self._params else (params,)
        try:
            return pickle.dumps((call, known, arguments), pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            words = f"{self.name}: what {call} is given cannot be sent to the process of this episode"
            raise ProcessError("process", call, "what can be pickled", words) from error

    def _exchange(self, call: str, request: bytes) -> bytes:
        try:
            self._channel.send_bytes(request)
            return self._channel.recv_bytes()
        except (EOFError, OSError):
            ending = self._bury()
        except BaseException:  # an interrupt: the answer would be taken for that to the next question
            self._bury()
            raise
        raise self._told(call, ending) from (ThereError(ending.trace) if ending.trace else None)

    def _read(self, call: str, reply: bytes) -> Reply:
        try:
            return pickle.loads(reply)
        except Exception as error:
            self._bury()  # it has gone on, and nobody knows where it stands
            words = f"{self.name}: what {call} returned cannot be made again in this process"
            raise ProcessError("process", call, "what can be pickled", words) from error

    def _told(self, call: str, ending: Ending) -> ProcessError:
        how = "was ended, because it took too long," if self._stopped else ending.words
        words = (
            f"{self.name}: the process of this episode {how} in {call}, which has not happened; "
            "the next request brings the episode back where it can be replayed, and reset begins another"
        )
        return ProcessError("process", ending.code, "a process that answers", words)

    def close(self) -> None:
        """Let the environment close itself, then end; in the middle of a step, end at once."""
        if not self._turn.acquire(blocking=False):
            self._stopped = True
            self._nursery.kill(self.pid)  # whoever waits for an answer hears that there is none
            return
        try:
            if self.alive:
                self._close()
        finally:
            self._turn.release()

    def _close(self) -> None:
        try:
            self._channel.send_bytes(self._request("close", self._params, ()))
            reply = pickle.loads(self._channel.recv_bytes()) if self._channel.poll(CLOSING) else LATE
        except (EOFError, OSError):
            return  # it has ended before
        finally:
            self._bury()
        self._value("close", reply)

    def end(self) -> None:
        """End without a word."""
        with self._turn:
            if self.alive:
                self._bury()

    def _bury(self) -> Ending:
        self._finalizer.detach()
        self._channel.close()
        return self._nursery.end(self.pid)


def _drop(nursery: Nursery, pid: int, channel: Connection) -> None:
    """Of a child that nobody has any more: it ends by itself, at the end of its questions."""
    channel.close()
    nursery.dropped.append(pid)
