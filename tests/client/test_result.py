"""`StepResult.text` is a string for every observation that a server can send."""

from typing import Any

import pytest

from tropism.client import StepResult
from tropism.client.protocol import Protocol
from tropism.wire.messages.chat import ChatMessage, ChatObservation
from tropism.wire.messages.coding import CodeObservation


def text_of(observation: Any) -> str:
    return StepResult(observation, 0.0, False, False, False, None).text


@pytest.mark.parametrize(
    ("observation", "expected"),
    [
        ({"text": "You are at row 0.", "value": [0, 0]}, "You are at row 0."),
        ({"text": "", "value": [0, 0]}, ""),
        ({"echoed": "hi", "length": 2, "done": False, "metadata": {"step": 1}}, "echoed: hi\nlength: 2"),
        ({"text": None, "seen": [1, 2]}, "text: null\nseen: [1, 2]"),
        (
            CodeObservation(stdout="4"),
            "stdout: 4\nstderr: \nexit_code: 0\ntimed_out: false\ntruncated_output: false\nlost: false\nprompt: ",
        ),
        (
            ChatObservation(messages=(ChatMessage(role="user", content="grüezi"),)),
            'messages: [{"role": "user", "content": "grüezi"}]\ntokens: []',
        ),
        ({}, ""),
        (None, ""),
        ([1, 2], "value: [1, 2]"),
    ],
)
def test_text_of_an_observation(observation: Any, expected: str):
    assert text_of(observation) == expected


def test_reply_without_an_observation_has_empty_text():
    effects = Protocol("http://localhost:8000").reset(None, None, None)
    next(effects)  # connects
    effects.send(None)
    with pytest.raises(StopIteration) as stop:
        effects.send('{"type": "observation", "data": {"observation": null, "reward": null, "done": false}}')
    assert (stop.value.value.text, stop.value.value.error) == ("", None)
