"""Imports the public names of a package on first use."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

from tropism.errors import require_extra

Home = str | tuple[str, str, tuple[str, ...]]  # a module; or a module, its extra, and what the extra installs


def load_on_use(package: str, homes: Mapping[str, Home]) -> Callable[[str], object]:
    """The `__getattr__` of a package whose names are defined in these modules."""

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        if not isinstance(home, str):
            home, extra, modules = home
            require_extra(extra, f"{package}.{name}", *modules)
        value = getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)  # not called again
        return value

    return load
