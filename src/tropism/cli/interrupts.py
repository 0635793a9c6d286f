"""Ctrl-C handling: one line and exit code 130, also during imports and compilation."""

import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

INTERRUPTED = 130  # exit code after Ctrl-C
GRACE = 1.0  # seconds until a thread exits instead: Python handles no signals while XLA compiles
RETRY_DELAY = 0.02  # seconds
FRAGILE = {"jax", "jaxlib", "equinox"}  # an exception raised in one of their callbacks is lost, or crashes


class Interrupts:
    """Raises KeyboardInterrupt on Ctrl-C as soon as that is safe, for commands that clean up."""

    def __init__(self) -> None:
        self.received = False  # whether Ctrl-C was pressed
        self._raised = False

    @contextmanager
    def handle_signals(self) -> Generator[None]:
        with _handler(self._handle, self._overdue):
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)

    def _handle(self, _signal: int, frame: FrameType | None) -> None:
        self.received = True
        packages = _packages(frame)
        if self._raised or "importlib" in packages:
            exit_now("Interrupted.")
        if not packages.isdisjoint(FRAGILE):
            signal.setitimer(signal.ITIMER_REAL, RETRY_DELAY)
            return
        self._raised = True
        raise KeyboardInterrupt

    def _overdue(self) -> None:
        is_ours = signal.getsignal(signal.SIGINT) == self._handle  # a server handles Ctrl-C itself while it runs
        if is_ours and not self._raised:
            exit_now("Interrupted.")


@contextmanager
def interruptible(message: Callable[[], str]) -> Generator[None]:
    """Exit immediately on Ctrl-C, with a message about what was saved.

    For commands that compile and have nothing to clean up: the files they write must be complete at any time.
    """

    def handle(*_: Any) -> NoReturn:
        exit_now(f"Interrupted. {message()}")

    with _handler(handle, handle):
        yield


def exit_now(message: str) -> NoReturn:
    """Exit with a line on stderr, written directly because the signal may have interrupted a print.

    Skips the interpreter's shutdown, which crashes while another thread compiles.
    """
    show_cursor = "\x1b[?25h\n" if os.isatty(2) else ""  # progress bars hide it
    os.write(2, f"{show_cursor}{message}\n".encode())
    os._exit(INTERRUPTED)


@contextmanager
def _handler(handle: Callable[..., Any], overdue: Callable[[], Any]) -> Generator[None]:
    """Call `handle` on Ctrl-C and on timers, and `overdue` from a thread if the program still runs `GRACE` seconds
    after Ctrl-C."""
    is_main = threading.current_thread() is threading.main_thread()  # other threads may not handle signals
    if not is_main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in background jobs of a shell
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def watch() -> None:
        while number := os.read(reader, 1):
            if number[0] == signal.SIGINT:
                time.sleep(GRACE)
                overdue()
        os.close(reader)

    handlers = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGALRM)}
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        os.close(writer)
        for number, before in handlers.items():
            signal.signal(number, before)


def _packages(frame: FrameType | None) -> set[str]:
    """The packages whose functions are running."""
    packages: set[str] = set()
    while frame is not None:
        packages.add(str(frame.f_globals.get("__name__")).partition(".")[0])
        frame = frame.f_back
    return packages
