"""What a client gets back from a reset or a step."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

BESIDE = ("reward", "done", "metadata", "error")  # fields of the reply, not of what the agent observes


@dataclass(frozen=True)
class StepResult:
    """`observation` is typed where the environment is known, otherwise a dict."""

    observation: Any
    reward: float | None
    done: bool
    terminated: bool
    truncated: bool
    metadata: dict[str, Any] | None
    error: str | None = None  # what was wrong with words that meant no action; then nothing happened

    @property
    def text(self) -> str:
        """The observation's own `text`; otherwise its fields, one `name: value` per line."""
        fields = _fields(self.observation)
        text = fields.get("text")
        if isinstance(text, str):
            return text
        return "\n".join(f"{name}: {_written(value)}" for name, value in fields.items() if name not in BESIDE)


def _fields(observation: Any) -> dict[str, Any]:
    """The fields of an observation; one without fields is the field `value`, None has no fields."""
    if observation is None:
        return {}
    if isinstance(observation, Mapping):
        return dict(observation)
    if is_dataclass(observation) and not isinstance(observation, type):
        return asdict(observation)
    return {"value": observation}


def _written(value: Any) -> str:
    """A string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
