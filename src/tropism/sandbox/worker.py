"""The program inside a sandbox: confines itself, then runs the code it receives, step by step.

Its source is sent to a fresh interpreter, so it imports nothing from this package but `remote_calls` and
`remote_objects`, which are sent too. The code it runs may forge its replies: the parent does not trust them.
"""

import _ast
import builtins
import contextlib
import ctypes
import errno
import importlib.util
import json
import linecache
import os
import random
import resource
import socket
import struct
import sys
import traceback
import types
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

from tropism.sandbox.remote_calls import SubmissionError, call, proxy
from tropism.sandbox.remote_objects import SharedObjects

NOT_CONFINED = 97  # exit code of a worker that could not confine itself
HEADER = struct.Struct("<c8sI")  # kind of frame, token of the request, length of the payload in bytes
NO_TOKEN = bytes(8)
MAX_OPEN_FILES = 2**20  # file descriptors that a server may have
CHANNEL = 3  # file descriptor of the channel, once it is moved away from standard input

NO_NEW_PRIVILEGES, DEATH_SIGNAL = 38, 1  # prctl
SIGKILL = 9
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446  # the same on every architecture
READ_FILE, READ_FOLDER = 1 << 2, 1 << 3
PATH_BENEATH = 1
COROUTINE = 0x80  # the flag of code that awaits
PROCESS_MODULES = {"subprocess.py", "popen_fork.py", "popen_spawn_posix.py", "synchronize.py"}
LIMITS = {"memory": "", "threads": "", "packages": ""}  # explanations, filled by `main`
SECCOMP = {"x86_64": 317, "aarch64": 277}


class Channel:
    """Frames to and from the parent."""

    def __init__(self, fd: int):
        self._socket = socket.socket(fileno=fd)
        self._token = NO_TOKEN

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        self._socket.sendall(HEADER.pack(kind, self._token, len(payload)) + payload)

    def receive(self) -> tuple[bytes, bytes]:
        kind, self._token, length = HEADER.unpack(self._receive_exactly(HEADER.size))
        return kind, self._receive_exactly(length)

    def _receive_exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = self._socket.recv(length - len(data))
            if not more:
                os._exit(0)  # the parent has ended
            data += more
        return data


class Packages(MetaPathFinder):
    """Finds the allowed packages by their places, without searching folders that contain other packages."""

    def __init__(self, places: dict[str, str]):
        self._places = places

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:  # noqa: ARG002
        if path is not None or fullname not in self._places:
            return None
        place = self._places[fullname]
        first = os.path.join(place, "__init__.py")
        if not os.path.isdir(place):
            return importlib.util.spec_from_file_location(fullname, place)
        if os.path.exists(first):
            return importlib.util.spec_from_file_location(fullname, first, submodule_search_locations=[place])
        spec = ModuleSpec(fullname, None, is_package=True)  # a package without code of its own
        spec.submodule_search_locations = [place]
        return spec


def confine(config: dict[str, Any]) -> None:
    """Irrevocably drop every right that untrusted code must not have."""
    libc = ctypes.CDLL(None, use_errno=True)
    if config["without_namespaces"]:  # otherwise the namespace ends this process with its parent
        check_result(libc.prctl(DEATH_SIGNAL, SIGKILL, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
        if os.getppid() != config["parent"]:
            raise OSError("the parent has ended")
    for name, limit in config["limits"].items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    check_result(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")
    if config["landlock"] is not None:
        _landlock(libc, **config["landlock"])
    _seccomp(libc, bytes.fromhex(config["filter"]))


def _landlock(libc: Any, handled: list[int], readable: list[str]) -> None:
    """Restrict file access to reading the paths in `readable`."""
    attributes = struct.pack("<3Q", *handled)
    ruleset = libc.syscall(LANDLOCK_CREATE, attributes, len(attributes), 0)
    check_result(ruleset, "landlock_create_ruleset")
    for path in readable:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        access = READ_FILE | READ_FOLDER if os.path.isdir(path) else READ_FILE
        check_result(
            libc.syscall(LANDLOCK_ADD, ruleset, PATH_BENEATH, struct.pack("<Qi", access, fd), 0), "landlock_add_rule"
        )
        os.close(fd)
    check_result(libc.syscall(LANDLOCK_RESTRICT, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _seccomp(libc: Any, program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    filter = struct.pack("<H6xQ", len(program) // 8, ctypes.addressof(buffer))  # noqa: A001  the kernel's term
    set_mode_filter, all_threads = 1, 1
    check_result(libc.syscall(SECCOMP[os.uname().machine], set_mode_filter, all_threads, filter), "seccomp")


def check_result(result: int, call: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")


def run(source: bytes, name: str, namespace: dict[str, Any]) -> int:
    """Run code like a script; returns its exit code, which is 1 after an exception."""
    try:
        text = source.decode("utf-8", "surrogatepass")
        linecache.cache[name] = (len(text), None, f"{text}\n".splitlines(keepends=True), name)
        code = compile_step(text, name)
        if code.co_flags & COROUTINE:
            import asyncio  # noqa: PLC0415  would double the time that a worker takes to start

            asyncio.run(eval(code, namespace))
        else:
            exec(code, namespace)
    except SystemExit as stop:
        return _exit_code(stop.code)
    except BaseException as error:  # noqa: BLE001  untrusted code may raise anything
        with contextlib.suppress(BaseException):  # the code may have broken the printing of exceptions
            print_exception(error, name)
        return 1
    return 0


def compile_step(text: str, name: str) -> types.CodeType:
    """Compile code that may use `await` and, like the interactive interpreter, shows the value of its last line."""
    tree = compile(text, name, "exec", _ast.PyCF_ONLY_AST | _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, _ast.Expr):
        place = {name: getattr(last, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
        show = _ast.Name("__displayhook__", _ast.Load(), **place)
        last.value = _ast.Call(show, [last.value], [], **place)
    return compile(tree, name, "exec", _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def print_exception(error: BaseException, name: str) -> None:
    """Print the traceback from the code's own first line, and which limit of the sandbox caused the exception."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != name:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)
    explanation = explain(error)
    if explanation:
        sys.stderr.write(f"[sandbox] {explanation}\n")


def explain(error: BaseException) -> str:
    """The limit of the sandbox that caused an exception; empty if it has another cause."""
    if isinstance(error, MemoryError):
        return LIMITS["memory"]
    if isinstance(error, ModuleNotFoundError):
        return LIMITS["packages"]
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return LIMITS["threads"]
    refused = isinstance(error, PermissionError) and error.errno == errno.EPERM
    files = {os.path.basename(frame.filename) for frame in traceback.extract_tb(error.__traceback__)}
    if isinstance(error, socket.gaierror) or (refused and "socket.py" in files):
        return "there is no network"
    if refused and files & PROCESS_MODULES:
        return "no other process can be started"
    if isinstance(error, PermissionError) and refused and error.filename is None:
        return "this operation is not allowed"
    inner = error.__cause__ or error.__context__
    return explain(inner) if inner is not None else ""


def _exit_code(code: Any) -> int:
    if code is None or isinstance(code, int):
        return int(code or 0) & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def run_test(payload: bytes, channel: Channel) -> int:
    source, names = json.loads(payload)
    proxies = {name: proxy(channel, name) for name in names}
    namespace: dict[str, Any] = {"__name__": "__test__", "__channel__": channel, "SubmissionError": SubmissionError}
    namespace |= proxies
    return run(source.encode("utf-8", "surrogatepass"), "<test>", namespace)


def requests(channel: Channel) -> Iterator[tuple[bytes, bytes]]:
    while True:
        yield channel.receive()


def show_help(*request: Any) -> None:
    import pydoc  # noqa: PLC0415  as above

    pydoc.Helper(sys.stdin, sys.stdout)(*request)


def serve(channel: Channel) -> None:
    """Serve requests until the parent ends; variables persist between requests."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    builtins.exit = builtins.quit = sys.exit  # usually defined by the module `site`, like `help`
    builtins.help = show_help
    builtins.__displayhook__ = sys.displayhook  # pyright: ignore[reportAttributeAccessIssue]
    out, err, shared = sys.stdout, sys.stderr, SharedObjects()
    for kind, payload in requests(channel):
        reply_kind = b"D"
        if kind == b"S":
            random.seed(payload)
            continue
        if kind == b"C":
            reply_kind, reply = call(payload, vars(main))
        elif kind == b"O":
            reply_kind, reply = shared.operate(payload)
        else:
            name, _, source = payload.partition(b"\0")
            code = run_test(payload, channel) if kind == b"T" else run(source, name.decode(), vars(main))
            reply = struct.pack("<i", code)
        for stream in (out, err):
            with contextlib.suppress(Exception):  # the code may have closed it
                stream.flush()
        channel.send(reply_kind, reply)


def open_channel() -> Channel:
    """Move the channel away from standard input, which is empty for the code that is run."""
    os.dup2(0, CHANNEL, inheritable=False)
    os.closerange(CHANNEL + 1, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], MAX_OPEN_FILES))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return Channel(CHANNEL)


def start() -> Channel:
    """Confine this process; if that fails, it exits."""
    try:
        channel = open_channel()
        config = json.loads(channel.receive()[1])
        sys.path[:] = [path for path in sys.path if path]
        sys.path += config["folders"]
        sys.meta_path.append(Packages(config["packages"]))
        LIMITS.update(config["explanations"])
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="backslashreplace", line_buffering=True)  # pyright: ignore
        confine(config)
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(NOT_CONFINED)
    return channel


def main() -> None:
    channel = start()
    run(b"pass", "<start>", {})  # loads what the first step needs
    channel.send(b"R")
    serve(channel)
