"""Whose code raised: an exception in the user's own code is told with their frames, and none of ours."""

import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType, TracebackType

FILTERING = "JAX_TRACEBACK_FILTERING"  # JAX hides its own frames, too, unless this is "off", and says so in a note
OURS = Path(__file__).parents[1]
STDLIB = Path(sysconfig.get_paths()["stdlib"])
INSTALLED = {"site-packages", "dist-packages"}


def told(error: Exception) -> str | None:
    """The exception in words where it comes of the user's code; None where it may be ours, and the stack is wanted."""
    if os.environ.get(FILTERING) == "off":
        return None
    if _is_theirs(error):
        _cut(error)
        return f"your own code raised {type(error).__name__}.\n{''.join(traceback.format_exception(error))}"
    named = _named()
    if not named:
        return None
    error.__notes__ = _notes(error)
    message = "".join(traceback.format_exception_only(error))
    advice = f"`tropism check` tells what is wrong with an environment; {FILTERING}=off shows the whole stack."
    return f"{', '.join(named)} could not be used.\n{message}{advice}\n"


def _named() -> list[str]:
    """What the command line names of the user's own: each `module:name` that was imported."""
    return [word for word in sys.argv[1:] if ":" in word and word.partition(":")[0] in sys.modules]


def _is_theirs(error: BaseException) -> bool:
    if isinstance(error, SyntaxError) and error.filename:  # what cannot be read has no frame
        return not _is_library(error.filename)
    return any(_is_own(frame) for frame, _ in traceback.walk_tb(error.__traceback__))


def _is_own(frame: FrameType) -> bool:
    """A package of theirs may be installed; then it is theirs because they named it."""
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    packages = {word.partition(":")[0].partition(".")[0] for word in _named()}
    return package in packages - {"tropism"} or not _is_library(frame.f_code.co_filename)


def _is_library(file: str) -> bool:
    path = Path(file)
    return (
        not path.is_file()  # such as <frozen importlib>
        or path.is_relative_to(OURS)
        or path.is_relative_to(STDLIB)
        or not INSTALLED.isdisjoint(path.parts)
    )


def _cut(error: BaseException) -> None:
    """Leave the user's frames, of this exception and of those of theirs that led to it."""
    error.__traceback__ = _own_frames(error.__traceback__)
    error.__notes__ = _notes(error)
    if error.__cause__ is not None and not _is_theirs(error.__cause__):
        error.__cause__ = None
    if error.__context__ is not None and not _is_theirs(error.__context__):
        error.__context__ = None
    for before in (error.__cause__, error.__context__):
        if before is not None:
            _cut(before)


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    if trace is None:
        return None
    below = _own_frames(trace.tb_next)
    return TracebackType(below, trace.tb_frame, trace.tb_lasti, trace.tb_lineno) if _is_own(trace.tb_frame) else below


def _notes(error: BaseException) -> list[str]:
    return [note for note in getattr(error, "__notes__", ()) if FILTERING not in note]
