"""What code in a sandbox can read: the interpreter, its standard library, and the packages that are allowed."""

import glob
import importlib.util
import os
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache

SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


@dataclass(frozen=True)
class View:
    """Paths are the same inside as outside."""

    interpreter: str
    readable: tuple[str, ...]  # folders and files, links resolved
    links: tuple[tuple[str, str], ...]  # where a link lies, what it says
    covered: tuple[str, ...]  # folders within the readable ones that hold packages nobody allowed
    packages: tuple[tuple[str, str], ...]  # name, folder


@cache
def view_of(packages: tuple[str, ...]) -> View:
    interpreter = _interpreter()
    library = os.path.realpath(sysconfig.get_path("stdlib"))
    found = {name: folder for name in packages if (folder := _folder(name)) is not None}
    beside = [f"{folder}.libs" for folder in found.values()]  # where wheels put shared libraries
    system = [path for path in SYSTEM_LIBRARIES if os.path.exists(path)]
    paths = [
        interpreter,
        library,
        os.path.realpath(sysconfig.get_path("platstdlib")),
        *glob.glob(os.path.join(sys.base_prefix, "lib", "libpython3*.so*")),
        *found.values(),
        *(path for path in beside if os.path.isdir(path)),
        *(path for path in system if not os.path.islink(path)),
    ]
    links = tuple((path, os.readlink(path)) for path in system if os.path.islink(path))
    strangers = (os.path.join(library, name) for name in ("site-packages", "dist-packages"))
    covered = tuple(path for path in strangers if os.path.isdir(path))
    return View(interpreter, tuple(dict.fromkeys(paths)), links, covered, tuple(found.items()))


def _interpreter() -> str:
    """The interpreter that a virtual environment was made of."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = os.path.join(sys.base_prefix, "bin", version)
    return os.path.realpath(base if os.path.exists(base) else sys.executable)


def _folder(name: str) -> str | None:
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return os.path.realpath(places[0]) if places else None
