"""Messages of Echo-v0."""

from dataclasses import dataclass

from tropism.wire.messages import Action, Observation


@dataclass(frozen=True, kw_only=True)
class EchoAction(Action):
    """The message to echo."""

    message: str


@dataclass(frozen=True, kw_only=True)
class EchoObservation(Observation, environment="Echo-v0"):
    """The echoed message and its length."""

    echoed_message: str
    message_length: int
