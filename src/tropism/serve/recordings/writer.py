"""Records the sessions of a server on disk, in one folder for each environment."""

import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pyarrow import ArrowException

from tropism.core.episode import Timestep
from tropism.core.session.session import EnvironmentState, Session
from tropism.errors import ServerError, ValidationError
from tropism.record import Manifest, Writer
from tropism.serve.recordings.catalog import RecordingCatalog, RecordingSource
from tropism.serve.recordings.protocol import RECORDING_KEY, Recordings, RestorePoint
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.replay import Source, check_reply, replay_entries
from tropism.serve.storage.protocol import Entry

T = TypeVar("T")
log = logging.getLogger("tropism.serve")
NOT_FROM_START = "this episode was not recorded from its beginning; reset begins another"


class RecordingWriter(Recordings):
    """Writes episodes into `folder / id`: resets before they are acknowledged, and steps then or at the end."""

    records = True

    def __init__(self, folder: str | Path, environments: Iterable[ServedEnvironment], **options: Any):
        self._writers: dict[str, Writer] = {}
        self._catalog = RecordingCatalog(Path(folder))
        try:
            for each in environments:
                manifest = Manifest.of(Session(each.env, each.params, engine="xla"))
                self._writers[each.id] = Writer(Path(folder) / each.id, manifest, **options)
        except BaseException:
            self.close()
            raise

    def restore_point(self, kind: str, session: Session, number: int | None, directly: bool) -> RestorePoint | None:
        if kind == "step" and session.lifecycle is EnvironmentState.READY and number is None:
            raise ServerError("NOT_RECORDED", NOT_FROM_START)
        if not directly:
            return None
        if session.lifecycle is EnvironmentState.CREATED:
            return session.new_like
        can_restore = session.env.traits.replayable and session.lifecycle is not EnvironmentState.CLOSED
        return session.restore_point() if can_restore else None

    def record_reset(self, id: str, session: Session, options: Any, timestep: Timestep) -> dict[str, int]:
        write = self._writers[id].begin
        return {RECORDING_KEY: _write(lambda: write(session.seed, options, timestep, session.episode_id))}

    def record_step(self, id: str, session: Session, number: int | None, action: Any, timestep: Timestep) -> None:
        write = self._writers[id].step
        assert number is not None, "`restore_point` has checked"
        coerced = session.action_space.coerce(action)
        _write(lambda: write(number, session.step_count, coerced, timestep))

    def record_fork(self, id: str, session: Session, origin: Entry, seed: int | None) -> dict[str, int]:
        parent, fork = origin.payload.get(RECORDING_KEY), self._writers[id].fork
        if parent is None:
            raise ServerError("NOT_RECORDED", NOT_FROM_START)
        number = _write(lambda: fork(parent, session.step_count, session.timestep, seed, session.episode_id))
        return {RECORDING_KEY: number}

    def record_episode(self, environment: ServedEnvironment, entries: list[Entry], start: int) -> None:
        number, write = entries[0].payload[RECORDING_KEY], self._writers[environment.id].step
        with environment.new_session() as session:
            for entry in replay_entries(environment, session, entries, partial(check_reply, environment)):
                if entry.kind == "step" and session.step_count > start:
                    action = session.action_space.coerce(environment.read_action(entry.payload))
                    _write(partial(write, number, session.step_count, action, session.timestep))

    def recorded_steps(self, id: str, entries: list[Entry]) -> int | None:
        begin, rewards = entries[0], [entry.reward for entry in entries if entry.kind == "step"]
        try:
            recorded = self._catalog.episode(id, begin.payload[RECORDING_KEY])
        except (ServerError, ValidationError):
            return None
        length = min(len(recorded), len(rewards))
        same = np.array_equal(recorded.rewards[:length], np.array(rewards[:length], float), equal_nan=True)
        return length if same and recorded.seed == begin.payload["seed"] else None

    def count(self, id: str) -> int | None:
        return self._writers[id].episodes

    def latest(self, id: str, before: int | None) -> list[dict[str, Any]]:
        return self._catalog.latest(id, before)

    def source(self, environment: ServedEnvironment, number: int) -> Source:
        return RecordingSource(self._catalog, environment, number)

    def close(self) -> None:
        """Close every writer, even if closing another one fails."""
        with ExitStack() as closing:
            for id, writer in self._writers.items():
                closing.callback(_close, id, writer)


def _close(id: str, writer: Writer) -> None:
    try:
        writer.close()
    except (OSError, ArrowException, ValidationError) as error:
        log.error("the last rows of %s were left in the tail file, where they can be read: %s", id, error)


def _write(write: Callable[[], T]) -> T:
    try:
        return write()
    except OSError as error:
        raise ServerError("NOT_RECORDED", f"not applied: it cannot be recorded: {error.strerror}") from error
