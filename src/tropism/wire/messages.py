"""The typed messages of agent environments, as frozen dataclasses; imports no JAX."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class State:
    """Where a session stands: its episode and the steps taken in it."""

    episode_id: str | None = None
    step_count: int = 0
