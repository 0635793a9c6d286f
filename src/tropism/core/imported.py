"""Things of the user's own, named `module:name`."""

import importlib
import sys
from typing import Any

from tropism.errors import ValidationError


def imported(name: str, target: str, what: str) -> Any:
    """What `target` names; the current folder is importable, as for `python -m`."""
    module, _, attribute = target.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValidationError(name, target, f"an importable {what} ({error})") from None
