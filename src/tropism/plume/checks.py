"""Validation of the numbers of plume parts at construction; traced and device values are not checked."""

from typing import Any

import numpy as np

from tropism.core.spaces.space import check_count
from tropism.errors import ValidationError


def require_positive(**values: Any) -> None:
    for name, value in values.items():
        _require(name, value, lambda number: np.isfinite(number) & (number > 0), "a finite number above 0")


def require_non_negative(**values: Any) -> None:
    for name, value in values.items():
        _require(name, value, lambda number: np.isfinite(number) & (number >= 0), "a finite number, 0 or more")


def require_fraction(**values: Any) -> None:
    for name, value in values.items():
        _require(name, value, lambda number: (number >= 0) & (number <= 1), "a number from 0 to 1")


def require_finite(**values: Any) -> None:
    for name, value in values.items():
        _require(name, value, np.isfinite, "a finite number")


def require_point(**values: Any) -> None:
    """(x, y), as two numbers or one array."""
    for name, value in values.items():
        is_scalar = isinstance(value, int | float | np.generic)
        if is_scalar or (isinstance(value, tuple | list | np.ndarray) and len(value) != 2):
            raise ValidationError(name, value, "(x, y)")
        for part in value if isinstance(value, tuple | list) else (value,):
            _require(name, part, np.isfinite, "(x, y), both finite")


def require_inside(low: Any, high: Any, **values: Any) -> None:
    """A point between two corners, where all three are plain numbers."""
    for name, value in values.items():
        numbers = [part for corner in (value, low, high) if isinstance(corner, tuple | list) for part in corner]
        if len(numbers) != 6 or not all(isinstance(number, int | float | np.generic) for number in numbers):
            continue
        if not all(a <= x <= b for a, x, b in zip(low, value, high, strict=True)):
            raise ValidationError(name, value, f"a point between {low} and {high}")


def require_count(at_least: int = 1, **values: Any) -> None:
    """A static whole number."""
    for name, value in values.items():
        check_count(name, value, at_least)


def _require(name: str, value: Any, allowed: Any, expected: str) -> None:
    if isinstance(value, str | bool | None):
        raise ValidationError(name, value, expected)
    if isinstance(value, int | float | np.ndarray | np.generic) and not np.all(allowed(value)):
        raise ValidationError(name, value, expected)
