"""A language agent's words as actions: a choice among words, one number, or anything said."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from tropism.core.spaces import Space
from tropism.errors import ValidationError

PUNCTUATION = " \t\r\n.!\"'`"


def plain(text: str) -> str:
    """The text in lower case, without the quotes and full stops that surround an answer."""
    return text.strip(PUNCTUATION).lower()


def parse_word(text: str, words: Sequence[str], space: Space) -> Any:
    """The index of a word; otherwise the action as JSON."""
    if plain(text) in words:
        return words.index(plain(text))
    return parse_json(text, text, space, f"one of {', '.join(words)}, or {space!r} as JSON")


def parse_number(text: str, space: Space) -> Any:
    """A bare number, for a box of one number; otherwise the action as JSON."""
    try:
        data = f"[{float(plain(text))}]"
    except ValueError:
        data = text
    return parse_json(text, data, space, f"a number within {space!r}")


def parse_record(text: str, space: Space, say: Callable[[str], Any]) -> Any:
    """The record that is written as JSON; any other words are what `say` makes of them."""
    try:
        data = json.loads(text)
    except ValueError:
        return say(text)
    return space.from_json(data) if isinstance(data, dict) else say(text)


def parse_json(text: str, data: str, space: Space, expected: str) -> Any:
    """The action `data` is the JSON of, or an error that quotes `text`."""
    try:
        return space.from_text(data)
    except ValidationError:
        raise ValidationError("action", text, expected) from None
