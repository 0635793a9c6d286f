"""The typed messages of agent environments, as frozen dataclasses; imports no JAX."""

from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, kw_only=True)
class Action:
    """What an agent does; subclass it, and add fields."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What an agent sees; subclass it, and add fields.

    `metadata` is a copy of the dict it was made with, and a session hands out copies of its observations:
    changing one changes nothing of ours.
    """

    done: bool = False
    reward: float = 0.0
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", dict(self.metadata))


@dataclass(frozen=True, kw_only=True)
class State:
    """Where a session stands: its episode and the steps taken in it."""

    episode_id: str | None = None
    step_count: int = 0


@dataclass(frozen=True, kw_only=True)
class EchoAction(Action):
    """What is to be echoed."""

    message: str


@dataclass(frozen=True, kw_only=True)
class EchoObservation(Observation):
    """The message that came back, and how long it is."""

    echoed_message: str
    message_length: int


@dataclass(frozen=True, kw_only=True)
class ChatMessage:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, kw_only=True)
class ChatAction(Action):
    """What the agent says, and in which role."""

    role: Role = "user"
    content: str


@dataclass(frozen=True, kw_only=True)
class ChatObservation(Observation):
    """The whole conversation, and its tokens where the environment has a tokenizer."""

    messages: tuple[ChatMessage, ...]
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CodeAction(Action):
    """Python to run after all that was run before; with `submit` it is the answer to the task, where there is one,
    and ends the episode."""

    code: str
    submit: bool = False


@dataclass(frozen=True, kw_only=True)
class CodeObservation(Observation):
    """What the code printed and how it ended: 0, 1 after an exception, minus the signal that killed it.

    `prompt` is the task, where there is one; `metadata` has the sandbox's tier and a digest of all results so far.
    """

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    timed_out: bool = False
    truncated_output: bool = False
    prompt: str = ""


@dataclass(frozen=True, kw_only=True)
class ConnectFourAction(Action):
    """The column to drop a disc into, from 0."""

    column: int


@dataclass(frozen=True, kw_only=True)
class ConnectFourObservation(Observation):
    """`board` as the player to move sees it (1 own disc, -1 the other's, 0 empty, top row first);
    `legal_actions` are the open columns; `winner` is 1 for X, -1 for O, 0 for nobody;
    `text` says it all in words."""

    board: list[list[int]]
    legal_actions: list[int]
    winner: Literal[-1, 0, 1] = 0
    text: str = ""


# What a client makes of the observations of these environments.
MESSAGES: dict[str, type[Observation]] = {
    "Echo-v0": EchoObservation,
    "Chat-v0": ChatObservation,
    "Coding-v0": CodeObservation,
    "ConnectFour-v0": ConnectFourObservation,
}
