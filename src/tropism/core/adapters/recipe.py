"""How to make one more of somebody else's environments: every episode lives in one of its own."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """Two recipes are equal where `name` is."""

    name: Any
    make: Callable[[], Any] = field(compare=False)


def recipe_of(source: Any) -> Recipe:
    """Of a class, a function, a `partial` of one, or an instance, which is copied and never used itself."""
    if isinstance(source, partial):
        return Recipe((source.func, repr((source.args, sorted(source.keywords.items())))), source)
    if callable(source):
        return recipe_of(partial(source))
    return Recipe(id(source), partial(copy.deepcopy, source))
