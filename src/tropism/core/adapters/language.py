"""Names and messages of an environment, and the parsing of a language agent's text into an action."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tropism.core.spaces import Space
from tropism.errors import ValidationError

PUNCTUATION = " \t\r\n.!\"'`"
LONGEST_PHRASE = 4  # words; a longer text may discuss several actions
NEGATION = re.compile(r"\b(no|not|never|avoid)\b|n't\b")


@dataclass(frozen=True)
class Language:
    """Names and message types of an environment, for people, language agents and the server."""

    actions: tuple[str, ...] = ()  # of a Discrete space one per action, of a Box one per entry
    observations: tuple[str, ...] = ()  # one per entry of an observation that is a short vector
    # The action of a click on each cell of the image: rows of equal cells from the upper left; None for no action.
    clicks: tuple[tuple[Any, ...], ...] = ()
    # Frozen dataclasses for served actions and observations that are not records themselves. The only field of
    # `action_type` is the action; `message(obs, info)` returns the fields of `observation_type` as JSON values.
    action_type: type | None = None
    # Fields of an observation that are served in its metadata: typed clients of OpenEnv reject fields they do not know.
    metadata_fields: tuple[str, ...] = ()
    tool: str = ""  # the name of the action as a tool; by default from the name of its message type
    observation_type: type | None = None
    message: Callable[[Any, dict[str, Any]], dict[str, Any]] | None = None


def normalize(text: str) -> str:
    """The text in lower case, without surrounding quotes and punctuation."""
    return text.strip(PUNCTUATION).lower()


def parse_word(text: str, words: Sequence[str], space: Space) -> Any:
    """The index of a word, alone or in a short phrase ("go left"); otherwise the action as JSON."""
    phrase = normalize(text)
    if phrase in words:
        return words.index(phrase)
    found = _find_words(phrase, words) if len(phrase.split()) <= LONGEST_PHRASE else []
    if len(found) == 1:
        return words.index(found[0])
    return parse_json(text, text, space, f"one of {', '.join(words)}, or {space!r} as JSON")


def _find_words(phrase: str, words: Sequence[str]) -> list[str]:
    """The words that occur in a phrase, longer ones before their parts; none if it has a negation."""
    if NEGATION.search(phrase):
        return []
    found: list[str] = []
    for word in sorted(words, key=len, reverse=True):
        phrase, count = re.subn(rf"\b{re.escape(word)}\b", " ", phrase)
        found += [word] * count
    return found


def parse_number(text: str, space: Space) -> Any:
    """A bare number, for a box of one number; otherwise the action as JSON."""
    try:
        data = f"[{float(normalize(text))}]"
    except ValueError:
        data = text
    return parse_json(text, data, space, f"a number within {space!r}")


def parse_record(text: str, space: Space, from_words: Callable[[str], Any]) -> Any:
    """The record written as JSON; any other text is passed to `from_words`."""
    try:
        data = json.loads(text)
    except ValueError:
        return from_words(text)
    return space.from_json(data) if isinstance(data, dict) else from_words(text)


def strip_fence(text: str, *languages: str) -> str:
    """The first block of a text between fences (```), of one of these languages or without one; else the text."""
    block = re.search(rf"```(?:{'|'.join(languages)})?[ \t]*\n(.*?)```", text, re.DOTALL)
    return block[1] if block else text


def parse_json(text: str, data: str, space: Space, expected: str) -> Any:
    """The action written as JSON in `data`; an error quotes `text`."""
    try:
        return space.from_text(data)
    except ValidationError:
        raise ValidationError("action", text, expected) from None
