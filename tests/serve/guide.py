"""A class in the style of OpenEnv's guide: a mutable state that it counts in, rewards of None, and a transform."""

from dataclasses import dataclass
from typing import Any

from tropism import AgentEnvironment
from tropism.wire.messages import Action, Observation, State


@dataclass(frozen=True, kw_only=True)
class GuessAction(Action):
    """A guess."""

    word: str


@dataclass(frozen=True, kw_only=True)
class GuessObservation(Observation):
    """Whether the guess was right, in words."""

    hint: str = ""


@dataclass(kw_only=True)
class GuessState(State):
    guesses: list[str]
    secret_length: int = 5


class Guessing(AgentEnvironment):
    """Guess a word; only the last step has a reward."""

    deterministic = True

    def __init__(self) -> None:
        self._state = GuessState(guesses=[])
        self.transforms = 0

    def reset(self, episode_id: str | None = None) -> GuessObservation:
        self._state = GuessState(episode_id=episode_id, guesses=[])
        return self._apply_transform(GuessObservation(hint="five letters", reward=None))

    def step(self, action: GuessAction) -> GuessObservation:
        self._state.step_count += 1
        self._state.guesses.append(action.word)
        right = action.word == "plume"
        observation = GuessObservation(hint=str(right), done=right, reward=1.0 if right else None)
        return self._apply_transform(observation)

    def transform(self, observation: Any) -> Any:
        self.transforms += 1
        return GuessObservation(
            hint=f"{observation.hint} ({self.transforms})", done=observation.done, reward=observation.reward
        )

    @property
    def state(self) -> GuessState:
        return self._state
