"""Tells user code from libraries in a traceback."""

import sysconfig
from pathlib import Path

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
