"""Chat with a tokenizer that has one token per byte."""

from typing import Any

from tropism.envs.chat import Chat


class Bytes:
    """A tokenizer in the style of Hugging Face's: a function of a conversation, and `decode`."""

    def __call__(self, conversation: list[dict[str, str]]) -> list[int]:
        return list("".join(message["content"] for message in conversation).encode())

    def decode(self, tokens: list[int]) -> str:
        return bytes(tokens).decode()


BYTES = Bytes()


class BytesChat(Chat):
    def __init__(self, **arguments: Any):
        super().__init__(tokenizer=BYTES, **arguments)
