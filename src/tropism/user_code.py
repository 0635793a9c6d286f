"""Tells user code from libraries in a traceback."""

import sysconfig
import traceback
from pathlib import Path
from types import FrameType

PACKAGE = Path(__file__).parent
STDLIB = Path(sysconfig.get_paths()["stdlib"])
PACKAGE_FOLDERS = {"site-packages", "dist-packages"}


def is_library(file: str) -> bool:
    """Whether a source file belongs to Tropism, the standard library or an installed package."""
    path = Path(file)
    return (
        not path.is_file()  # such as <frozen importlib>
        or path.is_relative_to(PACKAGE)
        or path.is_relative_to(STDLIB)
        or not PACKAGE_FOLDERS.isdisjoint(path.parts)
    )


def format_location(frame: FrameType, line: int) -> str:
    """The lines that a traceback has for a frame; the file relative to the working directory, if it is below it."""
    path = Path(frame.f_code.co_filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    summary = traceback.FrameSummary(str(shown), line, frame.f_code.co_name)
    return "".join(traceback.format_list([summary])).rstrip()
