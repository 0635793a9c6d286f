"""What a server records of its sessions: by default nothing."""

from collections.abc import Callable
from typing import Any

from tropism.core.episode import Timestep
from tropism.core.session.session import Session
from tropism.errors import ServerError
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.replay import Source
from tropism.serve.storage.protocol import Entry

RestorePoint = Callable[[], Session]
RECORDING_KEY = "recording"  # in the entry of a reset: the number of the episode's recording


class Recordings:
    """Records nothing; a subclass records.

    Each `record_` method writes before it returns, or raises; then the caller rolls the session back. `record_reset`
    and `record_fork` return fields for the entry of the reset. `id` is that of the environment, `number` that of the
    recording of the session's episode.
    """

    records = False

    def restore_point(self, kind: str, session: Session, number: int | None, directly: bool) -> RestorePoint | None:
        """Restores the session if its next reset or step cannot be recorded; None if it cannot be restored.

        Not needed for a step that is not recorded `directly`, but by `record_episode`.
        """
        return None

    def record_reset(self, id: str, session: Session, options: Any, timestep: Timestep) -> dict[str, int]:
        return {}

    def record_step(self, id: str, session: Session, number: int | None, action: Any, timestep: Timestep) -> None: ...

    def record_fork(self, id: str, session: Session, origin: Entry, seed: int | None) -> dict[str, int]:
        """The session continues an episode that began with `origin`."""
        return {}

    def record_episode(self, environment: ServedEnvironment, entries: list[Entry], start: int) -> None:
        """Replay an episode and record its steps after `start`."""

    def recorded_steps(self, id: str, entries: list[Entry]) -> int | None:
        """The number of steps in the recording of this episode; None if that is of another episode or missing."""
        return None

    def count(self, id: str) -> int | None:
        """How many episodes of environment `id` there are; None if nothing is recorded."""
        return None

    def latest(self, id: str, before: int | None) -> list[dict[str, Any]]:
        """The latest episodes of environment `id`; with `before`, of those with a smaller number."""
        raise _no_recordings_error()

    def source(self, environment: ServedEnvironment, number: int) -> Source:
        raise _no_recordings_error()

    def close(self) -> None: ...


def _no_recordings_error() -> ServerError:
    return ServerError("NOT_FOUND", "this server does not record; start it with tropism serve --record DIR")
