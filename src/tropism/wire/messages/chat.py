"""Messages of Chat-v0."""

from dataclasses import dataclass
from typing import Literal

from tropism.wire.messages import Action, Observation

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, kw_only=True)
class ChatMessage:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, kw_only=True)
class ChatAction(Action):
    """The agent's message and its role."""

    role: Role = "user"
    content: str


@dataclass(frozen=True, kw_only=True)
class ChatObservation(Observation, environment="Chat-v0"):
    """The whole conversation, and its tokens if the environment has a tokenizer."""

    messages: tuple[ChatMessage, ...]
    tokens: tuple[int, ...] = ()
