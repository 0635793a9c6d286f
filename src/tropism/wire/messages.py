"""Typed messages of agent environments, as frozen dataclasses; imports no JAX."""

from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, kw_only=True)
class Action:
    """Base class of actions; subclasses add fields."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Base class of observations; subclasses add fields.

    `metadata` is copied on construction, and a session returns copies of its observations: changing one has no effect
    on the session.
    """

    done: bool = False
    reward: float | None = 0.0  # None counts as 0
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", dict(self.metadata))


@dataclass(kw_only=True)
class State:
    """The episode of a session and the number of steps taken in it; an environment may count in its own."""

    episode_id: str | None = None
    step_count: int = 0


@dataclass(frozen=True, kw_only=True)
class EchoAction(Action):
    """The message to echo."""

    message: str


@dataclass(frozen=True, kw_only=True)
class EchoObservation(Observation):
    """The echoed message and its length."""

    echoed_message: str
    message_length: int


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
class ChatObservation(Observation):
    """The whole conversation, and its tokens if the environment has a tokenizer."""

    messages: tuple[ChatMessage, ...]
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CodeAction(Action):
    """Python code to run in the session's interpreter; with `submit` it is the solution of the task, if any, and ends
    the episode."""

    code: str
    submit: bool = False


@dataclass(frozen=True, kw_only=True)
class CodeObservation(Observation):
    """The output and exit code of the code: 0, 1 after an exception, or minus the signal that killed it.

    `lost`: the interpreter ended, and with it all variables; the last line of `stderr` gives the reason.
    `prompt` is the task, if any; `metadata` has the sandbox's tier and a digest of all results so far.
    """

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    timed_out: bool = False
    truncated_output: bool = False
    lost: bool = False
    prompt: str = ""


@dataclass(frozen=True, kw_only=True)
class ShellAction(Action):
    """A bash command, and its time limit in seconds, if not the default."""

    command: str
    timeout: float | None = None


@dataclass(frozen=True, kw_only=True)
class ShellObservation(Observation):
    """The output and exit code of the command; minus the signal if it was killed by one."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    timed_out: bool = False
    truncated_output: bool = False


@dataclass(frozen=True, kw_only=True)
class ConnectFourAction(Action):
    """The column to drop a disc into, from 0."""

    column: int


@dataclass(frozen=True, kw_only=True)
class ConnectFourObservation(Observation):
    """`board` from the view of the player to move (1 own disc, -1 opponent's, 0 empty, top row first);
    `legal_actions` are the open columns; `winner` is 1 for X, -1 for O, 0 for none;
    `text` is the board as text."""

    board: list[list[int]]
    legal_actions: list[int]
    winner: Literal[-1, 0, 1] = 0
    text: str = ""


# Message types that clients decode observations into, by environment id.
MESSAGES: dict[str, type[Observation]] = {
    "Echo-v0": EchoObservation,
    "Chat-v0": ChatObservation,
    "Coding-v0": CodeObservation,
    "ConnectFour-v0": ConnectFourObservation,
    "Shell-v0": ShellObservation,
}
