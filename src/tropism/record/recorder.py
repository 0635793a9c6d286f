"""A session whose every reset and step is recorded."""

from pathlib import Path
from typing import Any

from tropism.core.episode import Timestep
from tropism.core.session.session import Session
from tropism.errors import StateError
from tropism.record.manifest import Manifest
from tropism.record.writer import Writer, recordable


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
        recordable(seed)  # before the session leaves the episode it is in
        self.episode = None
        timestep = self.session.reset(seed=seed, options=options)
        self.episode = self.writer.begin(self.session.seed, options, timestep, self.session.episode_id)
        return timestep

    def step(self, action: Any) -> Timestep:
        session, episode = self.session, self.episode
        if episode is None:
            message = "no episode is being recorded: call the recorder's reset() first"
            raise StateError("episode", None, "a reset through the recorder", message)
        timestep = session.step(action)
        self.episode = None  # unless the step is written, the rest of the episode would have a gap
        self.writer.step(episode, session.step_count, session.action_space.coerce(action), timestep)
        self.episode = episode
        return timestep

    def close(self) -> None:
        self.writer.close()

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
