"""Records a session."""

from pathlib import Path
from typing import Any

from tropism.core.episode import Timestep
from tropism.core.session.session import Session
from tropism.errors import StateError
from tropism.record.manifest import Manifest
from tropism.record.writer import Writer, check_seed


class Recorder:
    """Resets and steps a session; each result is written before it is returned.

    >>> with Recorder(Session(env), "runs/cartpole") as recorder:
    ...     first = recorder.reset(seed=0)
    ...     then = recorder.step(1)

    With `memory_size`, each call takes the agent's memory, an array of as many numbers, and records it.
    """

    def __init__(self, session: Session, folder: str | Path, *, memory_size: int = 0, **options: Any):
        self.session = session
        self.writer = Writer(folder, Manifest.of(session, memory_size), **options)
        self.episode: int | None = None

    def reset(self, *, seed: Any = None, options: Any = None, memory: Any = None) -> Timestep:
        check_seed(seed)  # before the session ends its current episode
        self.episode = None
        timestep = self.session.reset(seed=seed, options=options)
        self.episode = self.writer.begin(self.session.seed, options, timestep, self.session.episode_id, memory)
        return timestep

    def step(self, action: Any, memory: Any = None) -> Timestep:
        session, episode = self.session, self.episode
        if episode is None:
            message = "no episode is being recorded: call the recorder's reset() first"
            raise StateError("episode", None, "a reset through the recorder", message)
        timestep = session.step(action)
        self.episode = None  # if writing fails, stop recording: the episode would have a gap
        self.writer.step(episode, session.step_count, session.action_space.coerce(action), timestep, memory=memory)
        self.episode = episode
        return timestep

    def close(self) -> None:
        self.writer.close()

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
