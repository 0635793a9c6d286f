"""Chat: a conversation with a partner; the default one lets the agent guess a secret number."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, cast

import equinox as eqx

from tropism.core.adapters.language import Language, parse_record
from tropism.core.environment import Environment, Info, outcome
from tropism.core.episode import host_key
from tropism.core.host import Host
from tropism.core.params import EnvParams
from tropism.core.spaces import Record
from tropism.core.spaces.space import check_count, is_integer
from tropism.errors import ValidationError
from tropism.wire.messages.chat import ChatAction, ChatMessage, ChatObservation

Messages = tuple[ChatMessage, ...]


class Reply(NamedTuple):
    """The partner's message, the reward of the agent's last message, and whether the conversation has ended."""

    content: str
    reward: float = 0.0
    done: bool = False


Partner = Callable[[int, Messages], Reply]  # takes the episode's seed and the conversation, () at the start
Tokenizer = Callable[[list[dict[str, str]]], Sequence[int]]


@dataclass(frozen=True)
class SecretNumber:
    """Draws a number from 1 to `highest` and replies to each guess whether it is too low or too high."""

    highest: int = 100

    def __call__(self, seed: int, messages: Messages) -> Reply:
        if not messages:
            return Reply(f"I am thinking of a number from 1 to {self.highest}. Which one is it?")
        match = re.search(r"-?[0-9]{1,9}(?![0-9])", messages[-1].content)
        if match is None:
            return Reply(f"Please say a number from 1 to {self.highest}.")
        guess, secret = int(match[0]), 1 + host_key(seed, 0) % self.highest
        if guess == secret:
            return Reply(f"Yes, it is {secret}!", reward=1.0, done=True)
        return Reply(f"{guess} is too {'low' if guess < secret else 'high'}.")


class MessageSpace(Record):
    """Messages, also as `{"tokens": […]}`, which the tokenizer decodes."""

    tokenizer: Any = eqx.field(static=True)

    def __init__(self, tokenizer: Any):
        super().__init__(ChatAction)
        self.tokenizer = tokenizer

    def coerce(self, x: Any, name: str = "action") -> Any:
        if isinstance(x, Mapping) and set(x) - {"metadata", "role"} == {"tokens"}:
            x = {"content": self._decode(x["tokens"], name)} | {key: x[key] for key in x if key == "role"}
        return super().coerce(x, name)

    def _decode(self, tokens: Any, name: str) -> str:
        decode = getattr(self.tokenizer, "decode", None)
        if not callable(decode):
            raise ValidationError(name, tokens, "'content': this Chat has no tokenizer that can decode tokens")
        flat = tokens[0] if isinstance(tokens, list) and len(tokens) == 1 and isinstance(tokens[0], list) else tokens
        if not isinstance(flat, list) or not flat or not all(is_integer(token) for token in flat):
            raise ValidationError(f"{name}.tokens", tokens, "a list of token ids")
        return str(decode(flat))

    def identity(self) -> tuple[Any, ...]:
        return (self.cls, self.tokenizer)


class ChatParams(EnvParams):
    """No parameters can be changed."""


class ChatState(NamedTuple):
    seed: int
    time: int
    messages: Messages


class Chat(Environment):
    """`partner` replies to each message of the agent: a function of the episode's seed and the conversation.

    Its role is the user if the agent's is the assistant, else the assistant. With a `tokenizer`, such as the
    `apply_chat_template` of a Hugging Face tokenizer, the observation also contains the conversation's tokens; if it
    has a method `decode`, an action may be tokens.

    Reward: set by the partner with each reply; the default partner gives 1 for the right number.

    Ends: terminated by the partner; truncated after `max_turns` messages of the agent.
    """

    language = Language(tool="send_message")

    partner: Partner = eqx.field(static=True)
    max_turns: int = eqx.field(static=True)
    tokenizer: Tokenizer | None = eqx.field(static=True)

    @property
    def host(self) -> Host:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A user's partner or tokenizer may be slow."""
        built_in = isinstance(self.partner, SecretNumber) and self.tokenizer is None
        return Host(reseedable=False, blocking=not built_in)

    def __init__(self, partner: Any = SecretNumber(), max_turns: Any = 20, tokenizer: Any = None):
        if not callable(partner):
            raise ValidationError("partner", partner, "a function of the seed and the messages that returns a Reply")
        if tokenizer is not None and not callable(tokenizer):
            raise ValidationError("tokenizer", tokenizer, "None or a function of the messages that returns tokens")
        self.partner = cast(Partner, partner)
        self.max_turns = check_count("max_turns", max_turns)
        self.tokenizer = cast(Tokenizer | None, tokenizer)

    def default_params(self) -> ChatParams:
        return ChatParams()

    def reset(self, key: int, params: Any) -> tuple[ChatObservation, ChatState]:
        opening = self.partner(key, ())
        messages = (ChatMessage(role="assistant", content=opening.content),)
        return observation(messages, self.tokenizer), ChatState(key, 0, messages)

    def step(
        self, key: int, state: ChatState, action: ChatAction, params: Any
    ) -> tuple[ChatObservation, ChatState, float, bool, Info]:
        sent = (*state.messages, ChatMessage(role=action.role, content=action.content))
        reply = self.partner(state.seed, sent)
        messages = (*sent, ChatMessage(role=partner_role(action.role), content=reply.content))
        state = ChatState(state.seed, state.time + 1, messages)
        done, info = outcome(bool(reply.done), state.time >= self.max_turns)
        obs = observation(messages, self.tokenizer, done=done, reward=reply.reward, metadata={"step": state.time})
        return obs, state, reply.reward, done, info

    def observation_space(self, params: Any) -> Record:
        return Record(ChatObservation)

    def action_space(self, params: Any) -> Record:
        return MessageSpace(self.tokenizer)

    def describe(self, state: ChatState, obs: ChatObservation, params: Any) -> str:
        lines = [f"{message.role}: {message.content}" for message in obs.messages]
        left = self.max_turns - state.time
        return "\n".join([*lines, f"Action: what to say next. Messages left: {left}."])

    def parse(self, text: str, params: Any) -> ChatAction:
        """The text as a message of the user, or the action as JSON."""
        return parse_record(text, self.action_space(params), lambda words: ChatAction(content=words))


def partner_role(role: str) -> Any:
    return "user" if role == "assistant" else "assistant"


def observation(messages: Messages, tokenizer: Tokenizer | None, **rest: Any) -> ChatObservation:
    tokens = () if tokenizer is None else tokenizer([asdict(message) for message in messages])
    return ChatObservation(messages=messages, tokens=tuple(int(token) for token in tokens), **rest)
