"""The recovery of a live session: from requests that failed, and from writes that failed."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

from tropism.core.session.session import Session
from tropism.errors import StateError
from tropism.serve import errors
from tropism.serve.recordings.protocol import RestorePoint
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.log import SessionLog
from tropism.serve.session.replay import restore_session
from tropism.serve.storage.protocol import RecoveryPoint


class RecoverableSession:
    """A session and its log; what is not in the log is undone."""

    __slots__ = ("_restore_point", "environment", "is_damaged", "log", "session", "write_lock")

    def __init__(self, environment: ServedEnvironment, session: Session, log: SessionLog):
        self.environment = environment
        self.session = session
        self.log = log
        self.is_damaged = False  # a failed request changed the session: it is repaired before the next one
        self._restore_point: RestorePoint | None = None  # where a repair leads to; None: to the last entry
        self.write_lock = threading.Lock()  # orders the write of a step and its timeout

    def mark_damaged(self, session: Session, moved: bool, restore_point: RestorePoint | None) -> None:
        """After a request failed in the environment: repair the session before the next request.

        `moved`: the session was reset or stepped, but its reply cannot be made. If it cannot be replayed, its episode
        ends.
        """
        with self.write_lock:
            if session is not self.session or not (moved or session.is_damaged):
                return
            if self.environment.env.traits.replayable:
                self.is_damaged = True
                self._restore_point = restore_point or (None if moved else session.restore_point())
            elif moved:
                self.session = session.new_like()
                session.close()

    def repair(self) -> None:
        """Restore the session after a failed request, by replay of its episode."""
        damaged, entries = self.session, self.log.memory.entries()
        if self._restore_point is not None:
            restored = self._restore_point()
        elif entries:
            restored = restore_session(self.environment, RecoveryPoint(after=entries), lambda *_: None)
        else:
            restored = damaged.new_like()
        with self.write_lock:
            self.session, self.is_damaged, self._restore_point = restored, False, None
        damaged.close()

    @contextmanager
    def hold_write_lock(self, session: Session) -> Generator[None]:
        """A block that holds the write lock; raises if a timeout has replaced this session."""
        with self.write_lock:
            if session is not self.session:
                raise errors.late_step_error()
            yield

    def rollback(self, session: Session, restore_point: RestorePoint | None) -> None:
        """Undo a reset or step that could not be written; without a restore point, the episode ends."""
        if session is not self.session:
            return
        restored = session.new_like()
        try:
            session.close()
            restored = restored if restore_point is None else restore_point()
        finally:
            with self.write_lock:
                replaced = session is not self.session
                if not replaced:
                    self.session = restored
            if replaced:  # the step timed out and was rolled back by `step_within`
                restored.close()

    def evict_lost(self) -> Session:
        """Close this session after a failed write, so that the next request reloads it from the journal.

        Returns the `Session`, which the caller closes.
        """
        closed = self.session.new_like()
        closed.close()
        with self.write_lock:
            lost, self.session = self.session, closed
        return lost

    def evict(self) -> bytes | None:
        """Close the session and return a snapshot to resume from; None if it cannot be resumed."""
        if self.is_damaged:
            self.repair()
        try:
            snapshot = self.session.snapshot() if self.environment.resumable else None
        except StateError:
            snapshot = None
        self.session.close()
        return snapshot
