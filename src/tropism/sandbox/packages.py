"""Installed packages that code in a sandbox may import: their dependencies and their places on disk."""

import importlib.util
import os
import re
import sys
from dataclasses import dataclass, field
from importlib import metadata

from tropism.errors import ValidationError

DEPENDENCY = re.compile(r"[\w.-]+")
NOT_IMPORTED = {"..", "__pycache__", "bin", "share", "etc", "include"}


@dataclass
class InstalledPackages:
    """Import names with their folder or file, and folders in which wheels put shared libraries."""

    paths: dict[str, str] = field(default_factory=dict)
    libraries: set[str] = field(default_factory=set)


def find_packages(names: tuple[str, ...]) -> InstalledPackages:
    """These packages and everything they require; an unknown name raises ValidationError."""
    found, seen = InstalledPackages(), set[str]()
    for name in names:
        if name in sys.stdlib_module_names:
            continue
        _add_distributions(_distributions(name), found, seen)
        if name not in found.paths:
            found.paths[name] = _locate(name)
    return found


def _distributions(name: str) -> list[str]:
    """The distributions that install an import name; most have the same name."""
    try:
        return [metadata.distribution(name).name]
    except metadata.PackageNotFoundError:
        return metadata.packages_distributions().get(name, [])


def _add_distributions(waiting: list[str], found: InstalledPackages, seen: set[str]) -> None:
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # required only on other systems
        _add_files(distribution, found)
        required = (text for text in distribution.requires or () if "extra ==" not in text)
        waiting += [match[0] for text in required if (match := DEPENDENCY.match(text))]


def _add_files(distribution: metadata.Distribution, found: InstalledPackages) -> None:
    for top in {path.parts[0] for path in distribution.files or ()} - NOT_IMPORTED:
        path = os.path.realpath(str(distribution.locate_file(top)))
        name, _, suffix = top.partition(".")
        if suffix == "libs":
            found.libraries.add(path)
        elif name.isidentifier() and (os.path.isdir(path) if not suffix else suffix.endswith(("py", "so"))):
            found.paths[name] = path


def _locate(name: str) -> str:
    """The place of a package that is not described by a distribution, such as one that is installed editably."""
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None:
        known = ", ".join(sorted(metadata.packages_distributions()))
        raise ValidationError("packages", name, f"the import name of an installed package: {known}")
    place = next(iter(spec.submodule_search_locations or ()), spec.origin)
    assert place is not None
    return os.path.realpath(place)
