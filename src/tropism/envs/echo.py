"""Echo: returns every message; the reward grows with its length."""

from typing import Any, NamedTuple

from tropism.core.adapters.language import Language, parse_record
from tropism.core.environment import Environment, Info
from tropism.core.host import Host
from tropism.core.params import EnvParams
from tropism.core.spaces import Record
from tropism.wire.messages.echo import EchoAction, EchoObservation

REWARD_PER_CHARACTER = 0.1


class EchoParams(EnvParams):
    """No parameters can be changed."""


class EchoState(NamedTuple):
    time: int


class Echo(Environment):
    """For testing a connection.

    Reward: 0.1 for each character of the message.

    Ends: never.
    """

    host = Host(blocking=False)
    endless = True
    language = Language(tool="echo_message")

    def default_params(self) -> EchoParams:
        return EchoParams()

    def reset(self, key: int, params: Any) -> tuple[EchoObservation, EchoState]:
        return EchoObservation(echoed_message="", message_length=0), EchoState(0)

    def step(
        self, key: int, state: EchoState, action: EchoAction, params: Any
    ) -> tuple[EchoObservation, EchoState, float, bool, Info]:
        time, message = state.time + 1, action.message
        reward = REWARD_PER_CHARACTER * len(message)
        obs = EchoObservation(
            echoed_message=message, message_length=len(message), reward=reward, metadata={"step": time}
        )
        return obs, EchoState(time), reward, False, {"terminated": False, "truncated": False}

    def observation_space(self, params: Any) -> Record:
        return Record(EchoObservation)

    def action_space(self, params: Any) -> Record:
        return Record(EchoAction)

    def describe(self, state: EchoState, obs: EchoObservation, params: Any) -> str:
        echo = f"The echo of step {state.time}: {obs.echoed_message!r}." if state.time else "Nothing to hear yet."
        return f"{echo}\nAction: any words; they come back, and each character is worth {REWARD_PER_CHARACTER}."

    def parse(self, text: str, params: Any) -> EchoAction:
        """The text as a message, or the action as JSON."""
        return parse_record(text, self.action_space(params), lambda words: EchoAction(message=words))
