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
    error: str | None = None  # what was wrong with words that meant no action; then nothing happened

    @property
    def text(self) -> str | None:
        """The observation in words, where the environment has them."""
        seen = self.observation
        return seen.get("text") if isinstance(seen, dict) else getattr(seen, "text", None)
