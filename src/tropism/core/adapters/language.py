"""A language agent's words as actions: a choice among words, one number, or anything said."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from tropism.core.spaces import Space
from tropism.errors import ValidationError

PUNCTUATION = " \t\r\n.!\"'`"
LONGEST_PHRASE = 4  # words; what is longer may weigh one action against another
NEGATION = re.compile(r"\b(no|not|never|avoid)\b|n't\b")


def plain(text: str) -> str:
    """The text in lower case, without the quotes and full stops that surround an answer."""
    return text.strip(PUNCTUATION).lower()


def parse_word(text: str, words: Sequence[str], space: Space) -> Any:
    """The index of a word, said alone or in a short phrase ("go left"); otherwise the action as JSON."""
    said = plain(text)
    if said in words:
        return words.index(said)
    meant = _meant(said, words) if len(said.split()) <= LONGEST_PHRASE else []
    if len(meant) == 1:
        return words.index(meant[0])
    return parse_json(text, text, space, f"one of {', '.join(words)}, or {space!r} as JSON")


def _meant(said: str, words: Sequence[str]) -> list[str]:
    """The words that occur in a phrase, longer ones before their parts; none where it says what not to do."""
    if NEGATION.search(said):
        return []
    found: list[str] = []
    for word in sorted(words, key=len, reverse=True):
        said, times = re.subn(rf"\b{re.escape(word)}\b", " ", said)
        found += [word] * times
    return found


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
