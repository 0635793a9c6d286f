"""Ctrl-C ends a command with one line and exit code 130, also while it imports modules or compiles."""

import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended
PATIENCE = 1.0  # seconds until a thread ends the program instead: while XLA compiles, Python handles no signal
AGAIN = 0.02  # seconds
FRAGILE = {"jax", "jaxlib", "equinox"}  # an exception raised in one of their callbacks is lost, or crashes


class Interrupts:
    """Ctrl-C for commands that clean up: it raises KeyboardInterrupt, as soon as that is safe."""

    def __init__(self) -> None:
        self.seen = False  # whether Ctrl-C was pressed
        self._raised = False

    @contextmanager
    def handled(self) -> Generator[None]:
        with _handler(signal.SIGINT, self._handle), _handler(signal.SIGALRM, self._handle), _watch(self._overdue):
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)

    def _handle(self, _signal: int, frame: FrameType | None) -> None:
        self.seen = True
        packages = _packages(frame)
        if self._raised or "importlib" in packages:
            leave("Interrupted.")
        if not packages.isdisjoint(FRAGILE):
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
            return
        self._raised = True
        raise KeyboardInterrupt

    def _overdue(self) -> None:
        is_ours = signal.getsignal(signal.SIGINT) == self._handle  # a server handles Ctrl-C itself while it runs
        if is_ours and not self._raised:
            leave("Interrupted.")


@contextmanager
def interruptible(last_words: Callable[[], str]) -> Generator[None]:
    """Ctrl-C ends the program at once, wherever it is, and says what it leaves.

    For commands that compile and have nothing to clean up: files that they write must be whole at any time.
    """

    def handle(*_: Any) -> NoReturn:
        leave(f"Interrupted. {last_words()}")

    with _handler(signal.SIGINT, handle), _watch(handle):
        yield


def leave(words: str) -> NoReturn:
    """End the program with a line on stderr, written directly: the signal may have come in the middle of a print.

    The interpreter does not end in its own way, because that crashes while another thread compiles.
    """
    show_cursor = "\x1b[?25h\n" if os.isatty(2) else ""  # progress bars hide it
    os.write(2, f"{show_cursor}{words}\n".encode())
    os._exit(INTERRUPTED)


@contextmanager
def _watch(overdue: Callable[[], Any]) -> Generator[None]:
    """Call `overdue` from a thread where the main thread has not ended the program some time after Ctrl-C."""
    if not _can_handle():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def watch() -> None:
        while number := os.read(reader, 1):
            if number[0] == signal.SIGINT:
                time.sleep(PATIENCE)
                overdue()
        os.close(reader)

    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)


@contextmanager
def _handler(number: int, handle: Callable[..., Any]) -> Generator[None]:
    if not _can_handle():
        yield
        return
    before = signal.signal(number, handle)
    try:
        yield
    finally:
        signal.signal(number, before)


def _can_handle() -> bool:
    """Only the main thread may handle signals; background processes of a shell go on ignoring Ctrl-C."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def _packages(frame: FrameType | None) -> set[str]:
    """The packages whose functions are running."""
    packages: set[str] = set()
    while frame is not None:
        packages.add(str(frame.f_globals.get("__name__")).partition(".")[0])
        frame = frame.f_back
    return packages
