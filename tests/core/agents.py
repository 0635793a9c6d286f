"""Class-based environments for tests: subclasses of AgentEnvironment, and one with self-validating messages."""

import random
from dataclasses import dataclass
from typing import Any, ClassVar

from tropism import Action, AgentEnvironment, Observation, State


@dataclass(frozen=True, kw_only=True)
class Guess(Action):
    number: int


@dataclass(frozen=True, kw_only=True)
class Hint(Observation):
    text: str


class Guessing(AgentEnvironment):
    """Guess a number from 0 to 9 that depends on the seed."""

    def __init__(self, highest: int = 9):
        self.highest = highest
        self.secret = 0
        self.steps = 0
        self.episode_id: str | None = None

    def reset(self, seed: int | None = None, episode_id: str | None = None, lowest: int = 0) -> Hint:
        self.secret = random.Random(seed).randint(lowest, self.highest)
        self.steps, self.episode_id = 0, episode_id
        return Hint(text="guess", metadata={"episode": episode_id is not None})

    def step(self, action: Guess) -> Hint:
        if action.number == -13:
            raise LookupError("thirteen")
        self.steps += 1
        right = action.number == self.secret
        over = right or self.steps >= 50
        return Hint(text="yes" if right else "no", reward=float(right), done=over, metadata={"step": self.steps})

    @property
    def state(self) -> State:
        return State(episode_id=self.episode_id, step_count=self.steps)


class Counting(AgentEnvironment):
    """Takes no seed, and declares itself deterministic."""

    deterministic: ClassVar[bool] = True
    blocking: ClassVar[bool] = False

    def __init__(self):
        self.count = 0
        self.closed = False

    def reset(self) -> Observation:
        return Observation()

    def step(self, action: Guess) -> Observation:
        self.count += 1
        return Observation(reward=1.0, done=self.count == 5, metadata={"count": self.count})

    def transform(self, observation: Observation) -> Observation:
        return Observation(reward=2 * (observation.reward or 0.0), done=observation.done, metadata={"seen": True})

    def close(self) -> None:
        self.closed = True


class Undecided(Counting):
    """Takes no seed, and does not declare itself deterministic."""

    deterministic: ClassVar[bool] = False


class Checked:
    """A model with the methods of pydantic that the library uses."""

    fields: ClassVar[dict[str, tuple[str, Any]]] = {}  # name: (JSON type, default; ... if required)
    kinds: ClassVar[dict[str, Any]] = {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict}

    def __init__(self, **values: Any):
        self.__dict__.update({name: default for name, (_, default) in self.fields.items()} | values)

    @classmethod
    def model_validate(cls, data: Any) -> Any:
        for name, (kind, default) in cls.fields.items():
            if (name not in data and default is ...) or not isinstance(data.get(name, default), cls.kinds[kind]):
                raise ValueError(f"{name}: not a {kind}")
        if set(data) - set(cls.fields):
            raise ValueError("extra fields")
        return cls(**data)

    def model_dump(self, mode: str = "python") -> dict[str, Any]:
        return dict(self.__dict__)

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        required = [name for name, (_, default) in cls.fields.items() if default is ...]
        properties = {name: {"type": kind} for name, (kind, _) in cls.fields.items()}
        return {"type": "object", "properties": properties, "required": required}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # pyright: ignore


class Move(Checked):
    fields: ClassVar[dict[str, tuple[str, Any]]] = {"to": ("integer", ...), "note": ("string", "")}


class View(Checked):
    fields: ClassVar[dict[str, tuple[str, Any]]] = {
        "at": ("integer", ...),
        "done": ("boolean", False),
        "reward": ("number", 0.0),
        "metadata": ("object", {}),
    }


class Stranger:
    """A class without our base class, which mutates the observation that it returned."""

    def __init__(self, limit: int = 8):
        self.limit = limit
        self.view: Any = View(at=0)
        self.transform = lambda observation: 1 / 0  # applied by the class itself, if at all

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> View:
        self.view = View(at=int(seed or 0) % 3, metadata=dict(kwargs))
        return self.view

    def step(self, action: Move, timeout_s: float | None = None, **kwargs: Any) -> View:
        self.view.at += 1 + action.to % 2  # pyright: ignore
        self.view.reward = 0.5
        self.view.done = self.view.at >= self.limit
        return self.view

    @property
    def state(self) -> Any:
        return State()
