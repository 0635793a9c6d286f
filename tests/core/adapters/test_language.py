"""Parsing the text of a language agent."""

from typing import Any

import pytest

from tropism.core.adapters.language import parse_word
from tropism.core.spaces import Discrete
from tropism.errors import ValidationError

WORDS = ("left", "right", "turn left", "stay")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("left", 0),
        (" Right. ", 1),
        ("go left", 0),
        ("I turn left!", 2),
        ("push right", 1),
        ("2", 2),
    ],
)
def test_a_word_alone_or_in_a_short_phrase(text: str, action: int):
    assert parse_word(text, WORDS, Discrete(4)) == action


@pytest.mark.parametrize(
    "text", ["", "left or right", "not left", "don't go left", "leftover", "should I rather go left now", "4", "go"]
)
def test_ambiguous_text_is_rejected(text: str):
    with pytest.raises(ValidationError) as caught:
        parse_word(text, WORDS, Discrete(4))
    refused: Any = caught.value
    assert (refused.name, refused.value) == ("action", text)
