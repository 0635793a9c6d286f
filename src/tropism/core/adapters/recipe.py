"""Builds a new instance of a third-party environment for every episode."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """Two recipes are equal if their names are."""

    name: Any
    make: Callable[[], Any] = field(compare=False)


def recipe_of(source: Any) -> Recipe:
    """The recipe of a class, a function, a `partial`, or an instance, which is copied and never stepped itself."""
    if isinstance(source, partial):
        return Recipe((source.func, repr((source.args, sorted(source.keywords.items())))), source)
    if callable(source):
        return recipe_of(partial(source))
    return Recipe(id(source), partial(copy.deepcopy, source))
