"""The log of a live session: its entries in the journal and in memory, and the recording of its episode."""

import logging
from collections.abc import Sequence

from tropism.errors import DivergedError, ServerError
from tropism.serve.recordings.protocol import RECORDING_KEY, Recordings
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.quota import StoredBytes
from tropism.serve.storage.protocol import DURABLE, MOVES, Claim, Entry, Journal, RecoveryPoint, Ticket
from tropism.serve.storage.working_memory import SessionLimits, WorkingMemory, snapshot_note
from tropism.wire.codec import encode

COUNTED_TOGETHER = 1024  # bytes: those of small steps are not counted one by one
EPISODE_ENDS = ("reset", "restore", "fork")  # the episode is deleted, or its recording continues in another one

log = logging.getLogger("tropism.serve")


class SessionLog:
    """Steps are recorded from the entries of the journal when the episode ends, or else directly.

    `records_from_entries` is true if this server records, the entries survive a crash and can be replayed.
    """

    __slots__ = (
        "_counted_bytes",
        "_environment",
        "_journal",
        "_limits",
        "_recordings",
        "_stored_bytes",
        "claim",
        "episode_bytes",
        "episodes_started",
        "is_doubtful",
        "memory",
        "recorded_steps",
        "records_from_entries",
        "snapshot_bytes",
        "ticket",
    )

    def __init__(
        self,
        environment: ServedEnvironment,
        claim: Claim,
        journal: Journal,
        recordings: Recordings,
        limits: SessionLimits,
        stored_bytes: StoredBytes,
    ):
        self.claim = claim
        self.memory = WorkingMemory(limits)
        self.ticket: Ticket = DURABLE  # of the last entries
        self.is_doubtful = claim.is_doubtful  # the episode may have been further; until its next reset or step
        self._counted_bytes = 0
        self.episode_bytes = self.snapshot_bytes = 0  # of the current episode's payloads, and of all snapshots
        self.episodes_started = 0
        self.recorded_steps = 0
        self.records_from_entries = recordings.records and journal.survives_crashes and environment.replayable
        self._environment = environment
        self._limits = limits
        self._stored_bytes = stored_bytes
        self._journal = journal
        self._recordings = recordings

    def append(self, entries: Sequence[Entry], snapshot: bytes | None = None, size: int = 0) -> None:
        """Append entries of this size to the journal, unless an earlier append failed, and to the working memory."""
        self.episode_bytes += size
        if abs(self.episode_bytes + self.snapshot_bytes - self._counted_bytes) >= COUNTED_TOGETHER:
            self._count_bytes()
        if self.is_doubtful and entries[0].kind in MOVES:
            self.is_doubtful = False
        if self.ticket.error is None:
            self.ticket = self._journal.append(self.claim, entries, snapshot)
        for entry in entries:
            self.memory.append(entry)

    def begin_episode(self, entries: Sequence[Entry], snapshot: bytes | None = None) -> None:
        """Append the entries of a new episode, all of which have been recorded."""
        self.append(entries, snapshot, _size(entries) - self.episode_bytes)
        self.episodes_started += 1
        self.recorded_steps = self.memory.steps

    def load(self) -> RecoveryPoint:
        """Fill the working memory from the claim; returns the point to resume from."""
        point, self.claim = self.claim.point, self.claim._replace(point=RecoveryPoint())
        for entry in point.before:
            self.memory.append(entry)
            if entry.request is not None and not entry.is_note:
                self.memory.mark_dropped(entry.request.request_id)
        for entry in point.after:
            self.memory.append(entry)
        self.episode_bytes, self.snapshot_bytes = _size(self.memory.entries()), self.memory.snapshot_bytes
        self._count_bytes()
        self._find_recording()
        return point

    def append_snapshot(self, snapshot_id: str, snapshot: bytes) -> None:
        """Append a note with a snapshot of the session, if there is room for it."""
        self.memory.check_room(snapshot)
        self._stored_bytes.check(self.claim.record.owner, len(snapshot))
        self.append((snapshot_note(snapshot_id, snapshot),))
        self.snapshot_bytes += len(snapshot)
        self._count_bytes()

    def check_room(self, size: int) -> None:
        """Raise if the episode, or all sessions of its owner, may not have so many more bytes."""
        limit, total = self._limits.max_episode_bytes, self.episode_bytes + size
        if total > limit:
            raise ServerError(
                "QUOTA_REACHED", f"the actions and uploads of an episode may have {limit} bytes; reset begins another"
            )
        more = total + self.snapshot_bytes - self._counted_bytes
        if more >= COUNTED_TOGETHER:
            self._stored_bytes.check(self.claim.record.owner, more)

    def check_room_for_fork(self) -> None:
        """Raise if the owner may not have another session with the bytes of this episode."""
        self._stored_bytes.check(self.claim.record.owner, self.episode_bytes)

    def _count_bytes(self) -> None:
        """Count the bytes of the episode and of the snapshots among those of the owner."""
        total = self.episode_bytes + self.snapshot_bytes
        self._stored_bytes.add(self.claim.record.owner, total - self._counted_bytes)
        self._counted_bytes = total

    def release_bytes(self) -> None:
        """The session has been closed or evicted."""
        self.episode_bytes = self.snapshot_bytes = 0
        self._count_bytes()

    def _find_recording(self) -> None:
        if self.recording_number is None:
            return
        recorded = self._recordings.recorded_steps(self._environment.id, self.memory.entries())
        if recorded is None:
            self.memory.amend_begin({RECORDING_KEY: None})
        else:
            self.recorded_steps = recorded

    @property
    def recording_number(self) -> int | None:
        """The number of the current episode's recording."""
        begin = self.memory.begin
        return None if begin is None else begin.payload.get(RECORDING_KEY)

    @property
    def has_unrecorded_steps(self) -> bool:
        """Whether the recording of the episode lacks steps."""
        behind = self.records_from_entries and self.memory.steps > self.recorded_steps
        return behind and self.recording_number is not None

    @property
    def records_directly(self) -> bool:
        """Whether the next step is to be recorded before it is acknowledged."""
        return not self.records_from_entries or (self.memory.full and self.memory.steps <= self.recorded_steps)

    def must_record(self, kind: str) -> bool:
        """Whether the recording must be completed before a request of this kind."""
        return self.has_unrecorded_steps and (kind in EPISODE_ENDS or self.memory.full)

    def record(self) -> None:
        """Complete the recording of the episode, by a replay of its entries; they must be durable."""
        if not self.has_unrecorded_steps:
            return
        try:
            self._recordings.record_episode(self._environment, self.memory.entries(), self.recorded_steps)
        except ServerError:  # it cannot be written now
            raise
        except Exception as error:  # no later replay would succeed
            kind = "diverges" if isinstance(error, DivergedError) else "fails"
            log.error("an episode cannot be recorded, because its replay %s", kind, exc_info=error)
            self.memory.amend_begin({RECORDING_KEY: None})
        self.recorded_steps = self.memory.steps


def _size(entries: Sequence[Entry]) -> int:
    return sum(len(encode(entry.payload)) for entry in entries)
