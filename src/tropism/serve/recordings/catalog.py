"""The recordings of a folder: lists the latest, and reads each as an episode to replay."""

import threading
from pathlib import Path
from typing import Any

from tropism.core.session.session import Session
from tropism.errors import DivergedError, ServerError, ValidationError
from tropism.record import Reader, RecordedEpisode
from tropism.record.manifest import MANIFEST
from tropism.record.replay import difference
from tropism.record.tail import tail_numbers, tail_path
from tropism.serve.recordings.protocol import RECORDING_KEY
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.protocol import Entry

MAX_LISTED = 50


class RecordingCatalog:
    """Reads recordings in `folder / id`; caches the files of one environment at a time."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._lock = threading.Lock()
        self._last: tuple[Any, Reader] | None = None

    def latest(self, id: str, before: int | None) -> list[dict[str, Any]]:
        """The latest episodes; with `before`, of those with a smaller number."""
        with self._lock:
            reader = self._reader(id)
            numbers = [number for number in reader.episodes if before is None or number < before]
            return [_row(reader, number) for number in numbers[: -MAX_LISTED - 1 : -1]]

    def episode(self, id: str, number: int) -> RecordedEpisode:
        with self._lock:
            reader = self._reader(id)
            if number not in reader.episodes:
                raise ServerError("NOT_FOUND", f"no episode {number} of {id} is recorded; there are {len(reader)}")
            return reader[number]

    def _reader(self, id: str) -> Reader:
        """The cached reader, unless its files have changed."""
        folder = self._folder / id
        tails = [tail_path(folder, number) for number in tail_numbers(folder)]
        version = (id, (folder / MANIFEST).stat().st_mtime_ns, [(tail.name, _size(tail)) for tail in tails])
        if self._last is None or self._last[0] != version:
            self._last = None  # free the old reader before the new one is loaded
            self._last = version, Reader(folder)
        return self._last[1]


class RecordingSource:
    """One recorded episode, as the source of a timeline."""

    def __init__(self, catalog: RecordingCatalog, environment: ServedEnvironment, number: int):
        self.environment = environment
        self._catalog = catalog
        self._number = number
        self._episode: RecordedEpisode | None = None
        self._entries: list[Entry] = []

    def entries(self) -> list[Entry]:
        episode = self._catalog.episode(self.environment.id, self._number)
        if episode.seed is None:
            raise ValidationError("seed", None, f"a seed: episode {self._number} was recorded without one")
        if self._episode is None or len(episode) != len(self._episode):
            self._episode, self._entries = episode, _entries(episode, self.environment)
        return list(self._entries)

    def episode_number(self) -> int:
        return self._number

    def compare(self, session: Session, _: Entry) -> None:
        """Compare observation, reward and flags with the recorded ones, bit for bit."""
        step = session.step_count
        found = difference(self._loaded_episode, step, session.timestep)
        if found is not None:
            message = f"the replay of episode {self._number} differs from the recording at step {step}"
            raise DivergedError("replay", found.replayed, f"the {found.name} {found.recorded}", message)

    def status(self) -> tuple[str, int]:
        return _lifecycle(self._loaded_episode), len(self._loaded_episode)

    @property
    def _loaded_episode(self) -> RecordedEpisode:
        assert self._episode is not None, "call `entries` first"
        return self._episode


def _entries(episode: RecordedEpisode, environment: ServedEnvironment) -> list[Entry]:
    begin = {"seed": episode.seed, "options": episode.options or None, "episode_id": episode.id}
    begin[RECORDING_KEY] = episode.number
    entries = [Entry("reset", begin, 0.0, False)]
    for step in range(1, len(episode) + 1):
        if step in episode.reseeds:
            entries.append(Entry("reseed", {"seed": episode.reseeds[step]}, 0.0, False))
        action = environment.form.write_action(episode.action(step))
        done = bool(episode.terminated[step - 1] or episode.truncated[step - 1])
        entries.append(Entry("step", action, float(episode.rewards[step - 1]), done))
    return entries


def _row(reader: Reader, number: int) -> dict[str, Any]:
    """A summary of an episode, or the error if it cannot be read."""
    try:
        episode = reader[number]
    except ValidationError as error:
        return {"number": number, "error": str(error)}
    return {
        "number": number,
        "episode_id": episode.id,
        "seed": None if episode.seed is None else str(episode.seed),  # exceeds the integers of JavaScript
        "steps": len(episode),
        "return": float(episode.rewards.sum()),
        "lifecycle": _lifecycle(episode),
        "parent": episode.parent,
    }


def _lifecycle(episode: RecordedEpisode) -> str:
    """The lifecycle of a session at the end of the episode."""
    if not len(episode):
        return "ready"
    return "terminated" if episode.terminated[-1] else "truncated" if episode.truncated[-1] else "ready"


def _size(tail: Path) -> int:
    try:
        return tail.stat().st_size
    except FileNotFoundError:  # it has just become a shard
        return 0
