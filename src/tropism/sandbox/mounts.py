"""The paths that code in a sandbox can read: the interpreter, its standard library and the allowed packages."""

import os
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache

from tropism.sandbox.packages import find_packages

SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


@dataclass(frozen=True)
class Mounts:
    """Paths are the same inside as outside."""

    interpreter: str
    system: tuple[str, ...]  # folders and files, links resolved
    links: tuple[tuple[str, str], ...]  # path of the link, its target
    hidden: tuple[str, ...]  # package folders inside the system folders
    packages: tuple[tuple[str, str], ...]  # import name, folder or file
    libraries: tuple[str, ...]  # folders next to packages in which wheels put shared libraries

    @property
    def allowed_paths(self) -> tuple[str, ...]:
        return (*(path for _, path in self.packages), *self.libraries)

    @property
    def readable(self) -> tuple[str, ...]:
        return (*self.system, *self.allowed_paths)


@cache
def mounts_for(packages: tuple[str, ...]) -> Mounts:
    interpreter = _base_interpreter()
    library = os.path.realpath(sysconfig.get_path("stdlib"))
    installed = find_packages(packages)
    system_libraries = [path for path in SYSTEM_LIBRARIES if os.path.exists(path)]
    compiled = sysconfig.get_path("platstdlib", vars={"platbase": sys.base_exec_prefix})  # not a virtual environment's
    python_folders = [os.path.join(sys.base_prefix, "lib"), library, compiled]
    system = [
        interpreter,
        *map(os.path.realpath, python_folders),
        *(path for path in system_libraries if not os.path.islink(path)),
    ]
    site_packages = (os.path.join(library, name) for name in ("site-packages", "dist-packages"))
    return Mounts(
        interpreter=interpreter,
        system=tuple(dict.fromkeys(path for path in system if not _is_within(path, system))),
        links=tuple((path, os.readlink(path)) for path in system_libraries if os.path.islink(path)),
        hidden=tuple(path for path in site_packages if os.path.isdir(path)),
        packages=tuple(sorted(installed.paths.items())),
        libraries=tuple(sorted(installed.libraries)),
    )


def _is_within(path: str, folders: list[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _base_interpreter() -> str:
    """The interpreter that a virtual environment is based on."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = os.path.join(sys.base_prefix, "bin", version)
    return os.path.realpath(base if os.path.exists(base) else sys.executable)
