"""What code in a sandbox can read: the interpreter, its standard library, and the packages that are allowed."""

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
    system: tuple[str, ...]  # folders and files, links resolved
    links: tuple[tuple[str, str], ...]  # where a link lies, what it says
    covered: tuple[str, ...]  # folders of packages within those of the system
    packages: tuple[tuple[str, str], ...]  # name, folder
    libraries: tuple[str, ...]  # folders beside those of packages, where wheels put shared libraries

    @property
    def allowed(self) -> tuple[str, ...]:
        return (*(folder for _, folder in self.packages), *self.libraries)

    @property
    def readable(self) -> tuple[str, ...]:
        return (*self.system, *self.allowed)


@cache
def view_of(packages: tuple[str, ...]) -> View:
    interpreter = _interpreter()
    library = os.path.realpath(sysconfig.get_path("stdlib"))
    found = {name: folder for name in packages if (folder := _folder(name)) is not None}
    shared = [path for path in SYSTEM_LIBRARIES if os.path.exists(path)]
    compiled = sysconfig.get_path("platstdlib", vars={"platbase": sys.base_exec_prefix})  # not a virtual environment's
    own = [os.path.join(sys.base_prefix, "lib"), library, compiled]
    system = [interpreter, *map(os.path.realpath, own), *(path for path in shared if not os.path.islink(path))]
    strangers = (os.path.join(library, name) for name in ("site-packages", "dist-packages"))
    beside = (f"{folder}.libs" for folder in found.values())
    return View(
        interpreter=interpreter,
        system=tuple(dict.fromkeys(path for path in system if not _within(path, system))),
        links=tuple((path, os.readlink(path)) for path in shared if os.path.islink(path)),
        covered=tuple(path for path in strangers if os.path.isdir(path)),
        packages=tuple(found.items()),
        libraries=tuple(path for path in beside if os.path.isdir(path)),
    )


def _within(path: str, folders: list[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _interpreter() -> str:
    """The interpreter that a virtual environment was made of."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = os.path.join(sys.base_prefix, "bin", version)
    return os.path.realpath(base if os.path.exists(base) else sys.executable)


def _folder(name: str) -> str | None:
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return os.path.realpath(places[0]) if places else None
