"""What a request may say, and how it is read."""

from typing import Any, TypeVar

import msgspec

from tropism.errors import ServerError, ValidationError

LONGEST_NUMBER = 18  # digits

T = TypeVar("T")


class ResetData(msgspec.Struct, forbid_unknown_fields=True):
    seed: Any = None
    episode_id: str | None = None
    options: dict[str, Any] | None = None


class HistoryData(msgspec.Struct, forbid_unknown_fields=True):
    start: int = msgspec.field(default=0, name="from")


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """A request without data."""


def convert(data: Any, form: type[T]) -> T:
    try:
        return msgspec.convert(data, form)
    except msgspec.ValidationError as error:
        raise ServerError("VALIDATION_ERROR", str(error)) from None


def history_from(data: Any) -> int:
    """The first step that is asked for."""
    start = convert(data, HistoryData).start
    if start < 0:
        raise ValidationError("from", start, "a step number of at least 0")
    return start


def whole_number(text: str) -> int | None:
    """The number that an address names; None where it names none, or one larger than there can be."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER else None
