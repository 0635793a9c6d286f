"""The result of a client's reset or step."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

REPLY_FIELDS = ("reward", "done", "metadata", "error")  # not part of what the agent observes


@dataclass(frozen=True)
class StepResult:
    """`observation` is a typed message for known environments, otherwise a dict."""

    observation: Any
    reward: float | None
    done: bool
    terminated: bool
    truncated: bool
    metadata: dict[str, Any] | None
    error: str | None = None  # why text could not be parsed as an action; the state is then unchanged

    @property
    def text(self) -> str:
        """The observation's `text`, or its fields, one `name: value` per line."""
        fields = {} if self.observation is None else message_fields(self.observation)
        text = fields.get("text")
        if isinstance(text, str):
            return text
        return "\n".join(f"{name}: {_to_text(value)}" for name, value in fields.items() if name not in REPLY_FIELDS)


def message_fields(message: Any) -> dict[str, Any]:
    """The fields of an action or observation; a bare value is the field `value`."""
    if is_dataclass(message) and not isinstance(message, type):
        return asdict(message)
    return dict(message) if isinstance(message, Mapping) else {"value": message}


def _to_text(value: Any) -> str:
    """A string unchanged, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
