"""Request types, and how they are parsed."""

from typing import Any, TypeVar

import msgspec

from tropism.errors import ServerError, ValidationError, shorten

LONGEST_NUMBER = 18  # digits

T = TypeVar("T")


class ResetRequest(msgspec.Struct):
    """Further fields are options, as OpenEnv's clients send them: see `parse_reset`."""

    seed: Any = None
    episode_id: str | None = None
    options: dict[str, Any] | None = None


class HistoryRequest(msgspec.Struct, forbid_unknown_fields=True):
    start: int = msgspec.field(default=0, name="from")


class EmptyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request without data."""


def convert(data: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ServerError("VALIDATION_ERROR", str(error)) from None


def parse_reset(data: dict[str, Any]) -> ResetRequest:
    """Unknown fields are merged into `options`."""
    request = convert(data, ResetRequest)
    extra = {name: value for name, value in data.items() if name not in ResetRequest.__struct_fields__}
    if not extra:
        return request
    options = request.options or {}
    for name, value in extra.items():
        if name in options and options[name] != value:
            raise ValidationError(name, value, f"the value it has in options, {shorten(options[name])}")
    request.options = options | extra
    return request


def parse_history(data: Any) -> int:
    """The first step to return."""
    start = convert(data, HistoryRequest).start
    if start < 0:
        raise ValidationError("from", start, "a step number of at least 0")
    return start


def parse_whole_number(text: str) -> int | None:
    """None if the text is not a whole number, or has too many digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER else None
