"""What a client gets back from a reset or a step."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepResult:
    """`observation` is typed where the environment is known, otherwise a dict."""

    observation: Any
    reward: float | None
    done: bool
    terminated: bool
    truncated: bool
    metadata: dict[str, Any] | None
