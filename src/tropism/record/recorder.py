"""A session whose every reset and step is recorded."""

from pathlib import Path
from typing import Any

from tropism.core.episode import Timestep
from tropism.core.session import Session
from tropism.errors import StateError
from tropism.record.manifest import Manifest
from tropism.record.writer import Writer


class Recorder:
    """Reset and step the session through it, and what they return has been written.

    >>> with Recorder(Session(env), "runs/cartpole") as recorder:
    ...     first = recorder.reset(seed=0)
    ...     then = recorder.step(1)
    """

    def __init__(self, session: Session, folder: str | Path, **options: Any):
        self.session = session
        self.writer = Writer(folder, Manifest.of(session), **options)
        self.episode: int | None = None

    def reset(self, *, seed: Any = None, options: Any = None) -> Timestep:
        timestep = self.session.reset(seed=seed, options=options)
        self.episode = self.writer.begin(self.session.seed, options, timestep, self.session.episode_id)
        return timestep

    def step(self, action: Any) -> Timestep:
        session = self.session
        if self.episode is None:
            message = "the recorder has seen no reset: call its reset() first"
            raise StateError("episode", None, "a reset through the recorder", message)
        timestep = session.step(action)
        self.writer.step(self.episode, session.step_count, session.action_space.coerce(action), timestep)
        return timestep

    def close(self) -> None:
        self.writer.close()

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
