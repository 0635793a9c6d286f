"""What runs in the other processes: the nursery, and in each child that it forks, one episode."""

import faulthandler
import gc
import importlib
import json
import os
import pickle
import signal
import socket
import struct
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from tropism.core.environment import Environment

ORDER = struct.Struct("<iI")  # to a nursery: what, and a process or a length; back: a number, and a length of words
IMPORT, START, KILL, END = range(4)
LONGEST_TRACE = 2**16  # bytes
CLOSING = 5  # seconds that an environment has to close itself when nobody is left to ask it to
THREADS = Path("/proc/self/task")


def main(control: int) -> None:
    """The nursery: does what it is told, for as long as there is somebody who tells it."""
    with socket.socket(fileno=control) as told:
        forks = Forks(told)
        with suppress(OSError):
            while forks.obey():
                continue
        forks.end_all()


def _imported(modules: Iterable[str]) -> bool:
    """False where an import has started threads: a fork would not have them, but whatever they had locked."""
    before = _threads()
    gc.unfreeze()
    for name in modules:
        with suppress(Exception):  # a child that needs it will say what is wrong
            importlib.import_module(name)
    sys.stdout.flush()  # or each child would print it again
    gc.collect()
    gc.freeze()  # or the collector would write to pages that parent and children share
    return _threads() <= before


def _threads() -> int:
    return len(list(THREADS.iterdir())) if THREADS.exists() else threading.active_count()


class Forks:
    """The children of a nursery; they stay until they are asked after, so that their numbers are nobody else's."""

    def __init__(self, control: socket.socket):
        self._control = control
        self._traces: dict[int, IO[bytes]] = {}  # what each says of a crash

    def obey(self) -> bool:
        """Do one thing; False where nobody is left to say what."""
        data, channels, *_ = socket.recv_fds(self._control, ORDER.size, 1)
        if not data:
            return False
        order, pid = ORDER.unpack(data)
        if order == IMPORT:
            names = json.loads(self._control.recv(pid, socket.MSG_WAITALL))
            code, words = int(_imported(names)), b""
        elif order == START:
            code, words = self._start(channels[0])
        elif order == KILL:
            code, words = self._kill(pid), b""
        else:
            code, words = self._end(pid)
        self._control.sendall(ORDER.pack(code, len(words)) + words)
        return True

    def _start(self, channel: int) -> tuple[int, bytes]:
        try:
            trace = tempfile.TemporaryFile()  # noqa: SIM115  kept as long as the child
            pid = os.fork()
        except OSError as error:
            os.close(channel)
            return -1, str(error).encode()
        if pid == 0:
            self._become(channel, trace)
        os.close(channel)
        self._traces[pid] = trace
        return pid, b""

    def _become(self, channel: int, trace: IO[bytes]) -> NoReturn:
        """From here on, this is a child."""
        code = 1
        try:
            self._control.close()
            for other in self._traces.values():
                other.close()
            faulthandler.enable(trace)
            np.random.seed()  # noqa: NPY002  or all would draw the same where an environment draws from it
            live(Connection(channel))
            code = 0
        except SystemExit as asked:
            code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
        except BaseException:  # noqa: BLE001  told to whoever asks how it ended
            trace.write(traceback.format_exc().encode())
            trace.flush()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _kill(self, pid: int) -> int:
        if pid in self._traces:
            os.kill(pid, signal.SIGKILL)
        return 0

    def _end(self, pid: int) -> tuple[int, bytes]:
        self._kill(pid)
        _, status = os.waitpid(pid, 0)
        with self._traces.pop(pid) as trace:
            trace.seek(0)
            return os.waitstatus_to_exitcode(status), trace.read(LONGEST_TRACE)

    def end_all(self) -> None:
        for pid in self._traces:
            self._kill(pid)


def live(channel: Connection) -> None:
    """A child: answers for one episode, until nobody asks any more."""
    os.register_at_fork(after_in_child=channel.close)  # or an environment's own processes would hide its end
    episode = Episode()
    with suppress(EOFError, OSError):
        while True:
            channel.send_bytes(episode.answer(channel.recv_bytes()))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(CLOSING)
    episode.close()


class Episode:
    """An environment, its params and its state."""

    env: Environment
    params: Any = None
    state: Any = None

    def answer(self, request: bytes) -> bytes:
        """`(kind, value, traceback)`, pickled. What cannot be answered has not changed the state."""
        try:
            call, params, arguments = pickle.loads(request)
            if params:
                (self.params,) = params
            value, state = CALLS[call](self, *arguments)
        except Exception as error:  # noqa: BLE001  whoever asked is told
            return _raised(error)
        try:
            reply = pickle.dumps(("returned", value, ""), pickle.HIGHEST_PROTOCOL)
        except Exception:  # noqa: BLE001  whatever a stranger's object raises
            words = f"what {call} returned cannot be pickled, and so not leave the process of this episode"
            return pickle.dumps(("unsent", words, traceback.format_exc()))
        self.state = state
        return reply

    def make(self, env: Environment) -> tuple[None, Any]:
        self.env = env
        return None, None

    def reset(self, key: Any) -> tuple[Any, Any]:
        return self.env.reset(key, self.params)

    def step(self, key: Any, action: Any) -> tuple[Any, Any]:
        obs, state, *outcome = self.env.step(key, self.state, action, self.params)
        return (obs, *outcome), state

    def info(self) -> tuple[Any, Any]:
        return self.env.info(self.state, self.params), self.state

    def render(self) -> tuple[Any, Any]:
        return self.env.render(self.state, self.params), self.state

    def agent_position_in_image(self) -> tuple[Any, Any]:
        return self.env.agent_position_in_image(self.state, self.params), self.state

    def describe(self, obs: Any) -> tuple[Any, Any]:
        return self.env.describe(self.state, obs, self.params), self.state

    def close(self) -> tuple[None, None]:
        state, self.state = self.state, None
        if state is not None:
            self.env.close(state)
        return None, None


CALLS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "make": Episode.make,
    "reset": Episode.reset,
    "step": Episode.step,
    "info": Episode.info,
    "render": Episode.render,
    "agent_position_in_image": Episode.agent_position_in_image,
    "describe": Episode.describe,
    "close": Episode.close,
}


def _raised(error: Exception) -> bytes:
    """The error itself, where it survives the way; otherwise what it was."""
    there = traceback.format_exc()
    try:
        reply = pickle.dumps(("raised", error, there), pickle.HIGHEST_PROTOCOL)
        pickle.loads(reply)
    except Exception:  # noqa: BLE001  whatever a stranger's exception does when it is made again
        return pickle.dumps(("unsent", f"it raised {type(error).__name__}, which cannot be pickled", there))
    return reply
