"""What a request may say, and how it is read."""

from typing import Any, TypeVar

import msgspec

from tropism.errors import ServerError, ValidationError, shorten

LONGEST_NUMBER = 18  # digits

T = TypeVar("T")


class ResetData(msgspec.Struct):
    """Further fields are options, as OpenEnv's clients send them: see `reset_from`."""

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


def reset_from(data: dict[str, Any]) -> ResetData:
    """What a reset is asked for; fields of no other name are options, beside those in `options`."""
    asked = convert(data, ResetData)
    beside = {name: value for name, value in data.items() if name not in ResetData.__struct_fields__}
    if not beside:
        return asked
    inside = asked.options or {}
    for name, value in beside.items():
        if name in inside and inside[name] != value:
            raise ValidationError(name, value, f"the value it has in options, {shorten(inside[name])}")
    asked.options = inside | beside
    return asked


def history_from(data: Any) -> int:
    """The first step that is asked for."""
    start = convert(data, HistoryData).start
    if start < 0:
        raise ValidationError("from", start, "a step number of at least 0")
    return start


def whole_number(text: str) -> int | None:
    """The number that an address names; None where it names none, or one larger than there can be."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER else None
