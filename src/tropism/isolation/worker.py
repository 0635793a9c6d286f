"""The code of the other processes: the fork server, and the workers that run one episode each."""

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
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from tropism.core.environment import Environment

COMMAND = struct.Struct("<iI")  # request: command, and process id or payload length; reply: code, payload length
IMPORT, START, KILL, END = range(4)
LONGEST_TRACE = 2**16  # bytes
CLOSE_TIMEOUT = 5  # seconds that an environment has to close itself after its channel has closed
THREADS_DIR = Path("/proc/self/task")


def main(control: int) -> None:
    """Run the fork server until its control socket closes."""
    with socket.socket(fileno=control) as connection:
        workers = Workers(connection)
        with suppress(OSError):
            while workers.handle_command():
                continue
        workers.kill_all()


def _import_modules(modules: Iterable[str]) -> bool:
    """False if an import started threads: a fork would lack them but inherit the locks they hold."""
    before = _count_threads()
    gc.unfreeze()
    for name in modules:
        with suppress(Exception):  # the worker that needs it reports the error
            importlib.import_module(name)
    sys.stdout.flush()  # otherwise each worker would print it again
    gc.collect()
    gc.freeze()  # keeps the collector from writing to pages shared with the workers
    return _count_threads() <= before


def _count_threads() -> int:
    return len(list(THREADS_DIR.iterdir())) if THREADS_DIR.exists() else threading.active_count()


class Workers:
    """The workers of a fork server. They are reaped only by END, so that their process ids are not reused."""

    def __init__(self, control: socket.socket):
        self._control = control
        self._traces: dict[int, IO[bytes]] = {}  # by process id: the file for the traceback of a crash

    def handle_command(self) -> bool:
        """Execute one command; False when the control socket has closed."""
        data, channels, *_ = socket.recv_fds(self._control, COMMAND.size, 1)
        if not data:
            return False
        command, pid = COMMAND.unpack(data)
        if command == IMPORT:
            names = json.loads(self._control.recv(pid, socket.MSG_WAITALL))
            code, payload = int(_import_modules(names)), b""
        elif command == START:
            code, payload = self._start(channels[0])
        elif command == KILL:
            code, payload = self._kill(pid), b""
        else:
            code, payload = self._end(pid)
        self._control.sendall(COMMAND.pack(code, len(payload)) + payload)
        return True

    def _start(self, channel: int) -> tuple[int, bytes]:
        try:
            trace = tempfile.TemporaryFile()  # noqa: SIM115  kept as long as the worker
            pid = os.fork()
        except OSError as error:
            os.close(channel)
            return -1, str(error).encode()
        if pid == 0:
            self._run_worker(channel, trace)
        os.close(channel)
        self._traces[pid] = trace
        return pid, b""

    def _run_worker(self, channel: int, trace: IO[bytes]) -> NoReturn:
        """The main function of the forked process."""
        code = 1
        try:
            self._control.close()
            for other in self._traces.values():
                other.close()
            faulthandler.enable(trace)
            np.random.seed()  # noqa: NPY002  otherwise all workers would share the global stream
            serve_episode(Connection(channel))
            code = 0
        except SystemExit as request:
            code = request.code if isinstance(request.code, int) else int(request.code is not None)
        except BaseException:  # noqa: BLE001  reported to the parent as the cause of the exit
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

    def kill_all(self) -> None:
        for pid in self._traces:
            self._kill(pid)


def serve_episode(channel: Connection) -> None:
    """Handle the calls of one episode until the channel closes."""
    os.register_at_fork(after_in_child=channel.close)  # an environment's own subprocesses must not keep it open
    episode = WorkerEpisode()
    with suppress(EOFError, OSError):
        while True:
            channel.send_bytes(episode.handle(channel.recv_bytes()))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(CLOSE_TIMEOUT)
    episode.close()


class WorkerEpisode:
    """An environment, its params and its state."""

    env: Environment
    params: Any = None
    state: Any = None

    def handle(self, request: bytes) -> bytes:
        """The reply `(kind, value, traceback)`, pickled. A call that fails does not change the state."""
        try:
            method, params, arguments = pickle.loads(request)
            if params:
                (self.params,) = params
            value, state = self.call(method, *arguments)
        except Exception as error:  # noqa: BLE001  sent to the caller
            return _encode_error(error)
        try:
            reply = pickle.dumps(("returned", value, ""), pickle.HIGHEST_PROTOCOL)
        except Exception:  # noqa: BLE001  a user's object may raise anything
            message = f"what {method} returned cannot be pickled and sent from the process of this episode"
            return pickle.dumps(("unsent", message, traceback.format_exc()))
        self.state = state
        return reply

    def call(self, method: str, *arguments: Any) -> tuple[Any, Any]:
        """The result of a method of the environment, and the state after it."""
        match method:
            case "make":
                (self.env,) = arguments
                return None, None
            case "reset":
                return self.env.reset(arguments[0], self.params)
            case "step":
                key, action = arguments
                obs, state, *outcome = self.env.step(key, self.state, action, self.params)
                return (obs, *outcome), state
            case "info":
                return self.env.info(self.state, self.params), self.state
            case "render":
                return self.env.render(self.state, self.params), self.state
            case "agent_position_in_image":
                return self.env.agent_position_in_image(self.state, self.params), self.state
            case "state_fields":
                return self.env.state_fields(self.state, self.params), self.state
            case "describe":
                return self.env.describe(self.state, arguments[0], self.params), self.state
            case _:  # "close"
                return self.close(), None

    def close(self) -> None:
        state, self.state = self.state, None
        if state is not None:
            self.env.close(state)


def _encode_error(error: Exception) -> bytes:
    """The error as a reply; only its type where it does not survive pickling."""
    trace = traceback.format_exc()
    try:
        reply = pickle.dumps(("raised", error, trace), pickle.HIGHEST_PROTOCOL)
        pickle.loads(reply)
    except Exception:  # noqa: BLE001  a user's exception may raise anything when unpickled
        return pickle.dumps(("unsent", f"it raised {type(error).__name__}, which cannot be pickled", trace))
    return reply
