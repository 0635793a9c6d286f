"""How many positional arguments a function takes."""

import inspect
from typing import Any


def accepts(function: Any, count: int) -> bool:
    """Whether `function` can be called with `count` positional arguments; True if its signature is unknown."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin without one
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True
