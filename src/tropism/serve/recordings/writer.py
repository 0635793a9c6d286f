"""Sessions of a server on disk: a folder of recordings for each environment."""

import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pyarrow import ArrowException

from tropism.core.episode import Timestep
from tropism.core.session.session import EnvironmentState, Session
from tropism.errors import ServerError, ValidationError
from tropism.record import Manifest, Writer
from tropism.serve.inspect.timeline import Source
from tropism.serve.recordings.catalog import RecordedSource, Shelf
from tropism.serve.recordings.protocol import KEY, Back, Recordable
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.protocol import Entry

T = TypeVar("T")
log = logging.getLogger("tropism.serve")
GAP = "this episode was not recorded from its beginning; reset begins another"


class RecordedFolder:
    """Writes what sessions do into `folder / id`, before it is acknowledged."""

    records = True

    def __init__(self, folder: str | Path, environments: Iterable[ServedEnvironment], **options: Any):
        self._writers: dict[str, Writer] = {}
        self._shelf = Shelf(Path(folder))
        try:
            for each in environments:
                manifest = Manifest.of(Session(each.env, each.params))
                self._writers[each.id] = Writer(Path(folder) / each.id, manifest, **options)
        except BaseException:
            self.close()
            raise

    def before(self, kind: str, served: Recordable) -> Back | None:
        session, env = served.session, served.environment.env
        if kind == "step" and session.lifecycle is EnvironmentState.READY and served.number is None:
            raise ServerError("NOT_RECORDED", GAP)
        if session.lifecycle is EnvironmentState.CREATED:
            return session.new_like
        can_go_back = (env.traced or env.replayable) and session.lifecycle is not EnvironmentState.CLOSED
        return session.restore_point() if can_go_back else None

    def begun(self, served: Recordable, options: Any, timestep: Timestep) -> dict[str, int]:
        session, write = served.session, self._writers[served.environment.id].begin
        return {KEY: _written(lambda: write(session.seed, options, timestep, session.episode_id))}

    def stepped(self, served: Recordable, action: Any, timestep: Timestep) -> None:
        session, number, write = served.session, served.number, self._writers[served.environment.id].step
        assert number is not None, "`before` has looked"
        own = session.action_space.coerce(action)
        _written(lambda: write(number, session.step_count, own, timestep))

    def forked(self, id: str, session: Session, origin: Entry, seed: int | None) -> dict[str, int]:
        parent, write = origin.payload.get(KEY), self._writers[id].fork
        if parent is None:
            raise ServerError("NOT_RECORDED", GAP)
        return {KEY: _written(lambda: write(parent, session.step_count, session.timestep, seed, session.episode_id))}

    def resumed(self, id: str, entries: list[Entry]) -> bool:
        """The folder may be another than it was, or there may have been a server in between that recorded nothing."""
        begin, rewards = entries[0], [entry.reward for entry in entries if entry.kind == "step"]
        try:
            recorded = self._shelf.episode(id, begin.payload[KEY])
        except (ServerError, ValidationError):
            return False
        same = recorded.seed == begin.payload["seed"] and len(recorded) >= len(rewards)
        return same and np.array_equal(recorded.rewards[: len(rewards)], np.array(rewards, float), equal_nan=True)

    def count(self, id: str) -> int | None:
        return self._writers[id].episodes

    def listed(self, id: str, before: int | None) -> list[dict[str, Any]]:
        return self._shelf.listed(id, before)

    def source(self, environment: ServedEnvironment, number: int) -> Source:
        return RecordedSource(self._shelf, environment, number)

    def close(self) -> None:
        """Close every writer, whatever happens to another."""
        with ExitStack() as closing:
            for id, writer in self._writers.items():
                closing.callback(_close, id, writer)


def _close(id: str, writer: Writer) -> None:
    try:
        writer.close()
    except (OSError, ArrowException, ValidationError) as error:
        log.error("the last rows of %s stay in their tail, where they can be read: %s", id, error)


def _written(write: Callable[[], T]) -> T:
    try:
        return write()
    except OSError as error:
        raise ServerError("NOT_RECORDED", f"not done, because it cannot be recorded: {error.strerror}") from error
