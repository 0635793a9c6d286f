"""Checks of the arguments of a search at construction."""

from typing import Any

import numpy as np

from tropism.core.spaces.space import as_array, is_integer
from tropism.errors import ValidationError


def validate_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValidationError(name, value, "True or False")
    return bool(value)


def validate_part(name: str, value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds):
        raise ValidationError(name, value, f"a {' or '.join(kind.__name__ for kind in kinds)}")
    return value


def validate_size(value: Any) -> tuple[int, int]:
    value = (value.width, value.height) if hasattr(value, "width") and hasattr(value, "height") else value
    sides = list(value) if isinstance(value, tuple | list | np.ndarray) else []
    if len(sides) != 2 or not all(is_integer(side) and int(side) >= 2 for side in sides):
        raise ValidationError("grid_size", value, "(width, height), whole numbers of at least 2")
    return int(sides[0]), int(sides[1])


def validate_point(name: str, value: Any) -> tuple[float, float]:
    array = as_array((value.x, value.y) if hasattr(value, "x") and hasattr(value, "y") else value)
    if array is None or array.shape != (2,) or array.dtype.kind == "b" or not np.isfinite(array).all():
        raise ValidationError(name, value, "two finite numbers, (x, y)")
    return float(array[0]), float(array[1])


def check_inside(name: str, point: Any, low: Any, high: Any) -> None:
    x, y = (float(side) for side in point)
    if not (low[0] <= x <= high[0] and low[1] <= y <= high[1]):
        raise ValidationError(name, (x, y), f"a point between {low} and {high}")


def is_whole(numbers: Any) -> bool:
    return all(float(number).is_integer() for number in numbers)


def validate_non_negative(name: str, value: Any) -> float:
    array = as_array(value)
    if array is None or array.shape != () or not (np.isfinite(array) and array >= 0) or array.dtype.kind == "b":
        raise ValidationError(name, value, "a finite number of at least 0")
    return float(array)
