"""Tracebacks of exceptions in user code, without the frames of libraries."""

import os
import sys
import traceback
from types import FrameType, TracebackType

from tropism.user_code import is_library

FILTERING = "JAX_TRACEBACK_FILTERING"  # unless this is "off", JAX also hides its frames and adds a note


def format_user_error(error: Exception) -> str | None:
    """A message for an exception raised by user code; None if it may be a bug of Tropism."""
    if os.environ.get(FILTERING) == "off":
        return None
    if _is_user_error(error):
        _strip(error)
        return f"your own code raised {type(error).__name__}.\n{''.join(traceback.format_exception(error))}"
    targets = _user_targets()
    if not targets:
        return None
    error.__notes__ = _notes(error)
    message = "".join(traceback.format_exception_only(error))
    advice = f"Use `tropism check` to find errors in an environment; {FILTERING}=off shows the full stack."
    return f"{', '.join(targets)} failed.\n{message}{advice}\n"


def _user_targets() -> list[str]:
    """The command-line arguments `module:name` whose module was imported."""
    return [word for word in sys.argv[1:] if ":" in word and word.partition(":")[0] in sys.modules]


def _is_user_error(error: BaseException) -> bool:
    if isinstance(error, SyntaxError) and error.filename:  # a file that does not parse has no frame
        return not is_library(error.filename)
    return any(_is_user_frame(frame) for frame, _ in traceback.walk_tb(error.__traceback__))


def _is_user_frame(frame: FrameType) -> bool:
    """Whether the frame is user code; an installed package counts if the command line names it."""
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    packages = {word.partition(":")[0].partition(".")[0] for word in _user_targets()}
    return package in packages - {"tropism"} or not is_library(frame.f_code.co_filename)


def _strip(error: BaseException) -> None:
    """Keep only user frames, in this exception and in the user exceptions that caused it."""
    error.__traceback__ = _user_frames(error.__traceback__)
    error.__notes__ = _notes(error)
    if error.__cause__ is not None and not _is_user_error(error.__cause__):
        error.__cause__ = None
    if error.__context__ is not None and not _is_user_error(error.__context__):
        error.__context__ = None
    for before in (error.__cause__, error.__context__):
        if before is not None:
            _strip(before)


def _user_frames(trace: TracebackType | None) -> TracebackType | None:
    if trace is None:
        return None
    below = _user_frames(trace.tb_next)
    return (
        TracebackType(below, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
        if _is_user_frame(trace.tb_frame)
        else below
    )


def _notes(error: BaseException) -> list[str]:
    return [note for note in getattr(error, "__notes__", ()) if FILTERING not in note]
