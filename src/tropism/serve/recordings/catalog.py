"""Recordings to look at: the latest of a folder, and each as an episode that can be replayed."""

import threading
from pathlib import Path
from typing import Any

from tropism.core.session.session import Session
from tropism.errors import DivergedError, ServerError, ValidationError
from tropism.record import Reader, RecordedEpisode
from tropism.record.columns import bitwise_equal
from tropism.record.manifest import MANIFEST
from tropism.record.tail import tail_numbers, tail_path
from tropism.serve.recordings.protocol import KEY
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.protocol import Entry

MOST_LISTED = 50


class Shelf:
    """Reads what was recorded into `folder / id`; one environment's files at a time are kept in memory."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._reading = threading.Lock()
        self._last: tuple[Any, Reader] | None = None

    def listed(self, id: str, before: int | None) -> list[dict[str, Any]]:
        """The latest episodes, of those with a number less than `before`."""
        with self._reading:
            reader = self._reader(id)
            numbers = [number for number in reader.episodes if before is None or number < before]
            return [_row(reader, number) for number in numbers[: -MOST_LISTED - 1 : -1]]

    def episode(self, id: str, number: int) -> RecordedEpisode:
        with self._reading:
            reader = self._reader(id)
            if number not in reader.episodes:
                raise ServerError("NOT_FOUND", f"no episode {number} of {id} is recorded; there are {len(reader)}")
            return reader[number]

    def _reader(self, id: str) -> Reader:
        """What was read before, unless something was written since."""
        folder = self._folder / id
        tails = [tail_path(folder, number) for number in tail_numbers(folder)]
        found = (id, (folder / MANIFEST).stat().st_mtime_ns, [(tail.name, _size(tail)) for tail in tails])
        if self._last is None or self._last[0] != found:
            self._last = None  # what was read before may go, before there is more
            self._last = found, Reader(folder)
        return self._last[1]


class RecordedSource:
    """One recorded episode, as a reel wants it."""

    def __init__(self, shelf: Shelf, environment: ServedEnvironment, number: int):
        self.environment = environment
        self._shelf = shelf
        self._number = number
        self._episode: RecordedEpisode | None = None
        self._entries: list[Entry] = []

    def entries(self) -> list[Entry]:
        episode = self._shelf.episode(self.environment.id, self._number)
        if episode.seed is None:
            raise ValidationError("seed", None, f"a seed: episode {self._number} was begun without one")
        if self._episode is None or len(episode) != len(self._episode):
            self._episode, self._entries = episode, _entries(episode, self.environment)
        return list(self._entries)

    def episode(self) -> int:
        return self._number

    def check(self, session: Session) -> None:
        """Bit for bit."""
        episode, step = self._recorded, session.step_count
        column = episode.columns["obs"]
        recorded, replayed = column.write(episode.observation(step)), column.write(session.timestep.obs)
        if not bitwise_equal(recorded, replayed):
            message = f"replayed, step {step} of episode {self._number} is not as it was recorded"
            raise DivergedError("replay", replayed, f"the observation {recorded}", message)

    def standing(self) -> tuple[str, int]:
        return _lifecycle(self._recorded), len(self._recorded)

    @property
    def _recorded(self) -> RecordedEpisode:
        assert self._episode is not None, "what is asked about is read first"
        return self._episode


def _entries(episode: RecordedEpisode, environment: ServedEnvironment) -> list[Entry]:
    begin = {"seed": episode.seed, "options": episode.options or None, "episode_id": episode.id, KEY: episode.number}
    entries = [Entry("reset", begin, 0.0, False)]
    for step in range(1, len(episode) + 1):
        if step in episode.reseeds:
            entries.append(Entry("reseed", {"seed": episode.reseeds[step]}, 0.0, False))
        action = environment.form.written(episode.action(step))
        done = bool(episode.terminated[step - 1] or episode.truncated[step - 1])
        entries.append(Entry("step", action, float(episode.rewards[step - 1]), done))
    return entries


def _row(reader: Reader, number: int) -> dict[str, Any]:
    """An episode, for people; one that cannot be read says why."""
    try:
        episode = reader[number]
    except ValidationError as error:
        return {"number": number, "error": str(error)}
    return {
        "number": number,
        "episode_id": episode.id,
        "seed": None if episode.seed is None else str(episode.seed),  # JavaScript has no such numbers
        "steps": len(episode),
        "return": float(episode.rewards.sum()),
        "lifecycle": _lifecycle(episode),
        "parent": episode.parent,
    }


def _lifecycle(episode: RecordedEpisode) -> str:
    """As a session would say it."""
    if not len(episode):
        return "ready"
    return "terminated" if episode.terminated[-1] else "truncated" if episode.truncated[-1] else "ready"


def _size(tail: Path) -> int:
    try:
        return tail.stat().st_size
    except FileNotFoundError:  # it became a shard just now
        return 0
