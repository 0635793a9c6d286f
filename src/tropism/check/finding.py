"""A finding: a law that does not hold, or an exception with the user's source line."""

import linecache
import os
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from jax import errors

from tropism.check.report import Status
from tropism.core.environment import Environment

LONGEST_ERROR = 300  # characters
PLACES = ("default_params", "reset", "step", "observation_space", "action_space", "render", "describe", "parse", "info")
LIBRARIES = frozenset({"beartype", "equinox", "jax", "jaxlib", "jaxtyping", "numpy"})  # never the user's code
STDLIB = Path(sysconfig.get_paths()["stdlib"])
INSTALLED = {"site-packages", "dist-packages"}
BRANCH = "Compiled code cannot branch in Python on a traced value: use jnp.where or jax.lax.cond."
NUMBER = "A traced value is not known before the compiled code runs: use jnp, not float(), int(), range() or NumPy."
TRACING_ERRORS = (
    errors.ConcretizationTypeError,
    errors.TracerArrayConversionError,
    errors.TracerIntegerConversionError,
    errors.NonConcreteBooleanIndexError,
)


class Finding(NamedTuple):
    """A law that does not hold: where, and what was observed."""

    place: str
    message: str
    status: Status = "failed"


def attempt(check: Callable[[], Finding | None], place: str = "env") -> Finding | None:
    """The result of `check`, or the exception that it raised as a finding."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001  any exception of a user's environment belongs in the report
        return Finding(_place_of(error) or place, describe_error(error))


def describe_error(error: Exception) -> str:
    """Type and message of an exception, with the line of the user's source that raised it."""
    if isinstance(error, TRACING_ERRORS):
        message = str(error).partition("\n")[0]
        advice = BRANCH if isinstance(error, errors.TracerBoolConversionError) else NUMBER
    else:
        message, advice = " ".join(str(error).split()), ""
    message = message if len(message) <= LONGEST_ERROR else f"{message[:LONGEST_ERROR]}…"
    lines = [f"{type(error).__name__}: {message}", *_location(error), advice]
    return "\n".join(line for line in lines if line)


def _location(error: Exception) -> list[str]:
    """The innermost line of the user's code, in the form of a traceback."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if not _is_library(frame)]
    # If a package that the user's code calls raises, the user's own line is more helpful.
    own = [(frame, line) for frame, line in frames if not _is_installed(frame)]
    if not frames:
        return []
    frame, line = (own or frames)[-1]
    file = frame.f_code.co_filename
    source = linecache.getline(file, line, frame.f_globals).strip()
    return [f'  File "{_short(file)}", line {line}, in {frame.f_code.co_name}', f"    {source}" if source else ""]


def _is_library(frame: FrameType) -> bool:
    module, file = str(frame.f_globals.get("__name__")), frame.f_code.co_filename
    if module.partition(".")[0] in LIBRARIES or module.startswith("tropism.core."):
        return True
    return file.startswith("<frozen ") or (Path(file).is_relative_to(STDLIB) and not _is_installed(frame))


def _is_installed(frame: FrameType) -> bool:
    return not INSTALLED.isdisjoint(Path(frame.f_code.co_filename).parts)


def _short(file: str) -> str:
    """The path relative to the working directory, if it is below it."""
    path, here = Path(file), Path.cwd()
    return os.fspath(path.relative_to(here)) if path.is_relative_to(here) else file


def _place_of(error: Exception) -> str | None:
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if isinstance(frame.f_locals.get("self"), Environment) and frame.f_code.co_name in PLACES:
            return frame.f_code.co_name
    return None
