"""A live session: performs requests and returns their replies as JSON."""

import secrets
import time
from collections.abc import Callable
from functools import partial
from math import isfinite
from typing import Any, TypeVar

from tropism.core.session.session import Session
from tropism.errors import ObservationError, ServerError, StateError, ValidationError, shorten
from tropism.serve import errors
from tropism.serve.session import ids
from tropism.serve.session.environment import ServedEnvironment, contain, in_thread
from tropism.serve.session.files import FILE_OPERATIONS, READS
from tropism.serve.session.fork import ServerContext, fork, fork_from_origin, fork_reply, restore_snapshot
from tropism.serve.session.history import history
from tropism.serve.session.idempotency import reply_once, request_key
from tropism.serve.session.json_form import session_state
from tropism.serve.session.lock import SessionLock
from tropism.serve.session.log import SessionLog
from tropism.serve.session.recovery import RecoverableSession
from tropism.serve.session.replay import compare_reward, periodic_snapshot, restore_session
from tropism.serve.session.requests import (
    ANYWHERE,
    EmptyRequest,
    EpisodePosition,
    ForkRequest,
    RestoreRequest,
    convert,
    has_few_values,
    parse_reset,
)
from tropism.serve.storage.protocol import Claim, Entry, RequestKey
from tropism.serve.storage.working_memory import reply_note
from tropism.wire.codec import encode

LONG_EPISODE = 1000  # entries; writing a fork of a longer episode is slow

T = TypeVar("T")


class LiveSession(RecoverableSession):
    """A session, its owner, and the number of sockets attached to it. Performs one request at a time."""

    __slots__ = (
        "_context",
        "_snapshot_every",
        "form",
        "id",
        "lock",
        "opened_at",
        "sockets",
        "steps_written",
        "used_at",
    )

    def __init__(self, id: str, environment: ServedEnvironment, session: Session, context: ServerContext, claim: Claim):
        limits = context.settings.session_limits
        log = SessionLog(environment, claim, context.journal, context.recordings, limits, context.stored_bytes)
        super().__init__(environment, session, log)
        self.id = id
        self.sockets = 0
        self.steps_written = 0
        self.opened_at = self.used_at = time.monotonic()
        self.form = environment.form_for(context.settings.shows_private_info(claim.record.owner))
        self._context = context
        self._snapshot_every = limits.snapshot_every if environment.env.pure else 0
        self.lock = SessionLock()

    @property
    def owner(self) -> str:
        return self.log.claim.record.owner

    @property
    def watch_id(self) -> str:
        return ids.watch_id(self.id)

    @property
    def is_evictable(self) -> bool:
        """Whether no caller is connected, and the next request can resume the session."""
        return not self.sockets and not self.lock.is_locked and self.environment.resumable and len(self.log.memory) > 0

    @property
    def log_context(self) -> dict[str, Any]:
        """Fields that identify this session in log lines, as in the journal: its id would permit stepping it."""
        own = {"session": self.log.claim.key.hex(), "episode_id": self.session.episode_id}
        return own | {"environment": self.environment.id}

    def can_run_inline(self, kind: str, data: dict[str, Any], is_short: bool = False) -> bool:
        """Whether this may run on the event loop: not if it may take long, nor while another runs.

        `is_short`: the request is too short to have many values.
        """
        if not self.environment.inline or self.lock.is_locked or self.is_damaged:
            return False
        if not is_short and not has_few_values(data):
            return False
        if self.log.records_from_entries and self.log.must_record(kind):
            return False
        if kind in INLINE_KINDS:
            return True
        long = isinstance(data.get("from"), dict) or len(self.log.memory) > LONG_EPISODE
        return kind in OPERATIONS and self.environment.env.pure and not long

    async def run(self, inline: bool, function: Callable[..., T], *arguments: Any) -> T:
        """Call `function` on the event loop if `inline`, otherwise in a thread under the session's lock."""
        self.used_at = time.monotonic()
        if inline:
            return contain(function, *arguments)
        return await self.lock.run(lambda: self._run(function, *arguments))

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        try:
            if arguments[:1] == ("fork",):
                return await self._context.replay_pool.run(self.environment, self.owner, function, *arguments)
            return await self.in_thread(function, *arguments)
        finally:
            self.used_at = time.monotonic()

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await in_thread(self._context.threads, function, *arguments)

    async def perform(
        self, kind: str, data: dict[str, Any], request_id: str | None = None, position: EpisodePosition = ANYWHERE
    ) -> bytes:
        """Perform a request and return its reply once it is durable; a repeated request id returns the first reply."""
        if kind not in OPERATIONS:
            raise unknown_type(kind)
        if self.log.must_record(kind):
            await self.record()
        if kind == "fork":
            await self._context.make_room(self.owner, self.environment, keep=self)
        reply = await self.run(self.can_run_inline(kind, data), self.perform_once, kind, data, request_id, position)
        await self.wait_durable()
        return reply

    async def wait_durable(self) -> None:
        """Return when all entries of this session are durable; if they cannot be, it is evicted."""
        try:
            await self._context.journal.durable(self.log.ticket)
        except ServerError:
            self._context.evict_lost(self)
            raise
        self.record_if_ended()

    def perform_inline(
        self, kind: str, data: dict[str, Any], request_id: str | None, position: EpisodePosition = ANYWHERE
    ) -> bytes:
        """As `perform`, if `can_run_inline`; the caller waits for durability."""
        self.used_at = time.monotonic()
        try:
            return self.perform_once(kind, data, request_id, position)
        except Exception:
            raise
        except BaseException as error:  # of the environment, such as SystemExit
            raise errors.EnvironmentExitError from error

    def perform_once(
        self, kind: str, data: dict[str, Any], request_id: str | None, position: EpisodePosition = ANYWHERE
    ) -> bytes:
        """As `perform`, in this thread; the caller waits for durability."""
        if self.is_damaged and kind != "reset":
            self.repair()
        if request_id is None or kind in READS:
            if position is not ANYWHERE or self.log.is_doubtful:
                position.check(kind, data, self.session, self.log.is_doubtful)
            return OPERATIONS[kind](self, data, None)
        request = request_key(request_id, kind, data)
        return reply_once(self.log.memory, request, partial(self._perform_and_store, kind, data, request, position))

    def _perform_and_store(
        self, kind: str, data: dict[str, Any], request: RequestKey, position: EpisodePosition
    ) -> bytes:
        position.check(kind, data, self.session, self.log.is_doubtful)
        reply = OPERATIONS[kind](self, data, request)
        if kind in NOT_REPLAYED:
            self.log.append((reply_note(request, reply),))
        else:
            self.log.memory.add_reply(request, reply)
        return reply

    def reset(self, data: dict[str, Any], key: RequestKey | None = None) -> bytes:
        request, session, recordings = parse_reset(data), self.session, self._context.recordings
        restore_point = recordings.restore_point("reset", session, None, True)
        began = False
        try:
            timestep = session.reset(seed=request.seed, options=request.options, episode_id=request.episode_id)
            began = True
            reply = self.form.reply(session, timestep)
            encoded, digest = encode(self.reset_reply(reply, session.episode_id)), self.form.digest(timestep)
        except BaseException:
            self.mark_damaged(session, began, restore_point)
            raise
        self.is_damaged = False
        payload = {"seed": session.seed, "options": request.options, "episode_id": session.episode_id}
        try:
            with self.hold_write_lock(session):
                payload |= recordings.record_reset(self.environment.id, session, request.options, timestep)
                self.log.begin_episode((Entry("reset", payload, timestep.reward, False, digest, key),))
        except BaseException:
            self.rollback(session, restore_point)
            raise
        return encoded

    def reset_reply(self, reply: dict[str, Any], episode_id: str | None) -> dict[str, Any]:
        """The reply to a reset, with the ids of this session."""
        return reply | ids.all_ids(self.id) | {"episode_id": episode_id, "environment": self.environment.id}

    async def record(self) -> None:
        """Complete the recording of the episode, once its entries are durable."""
        await self._context.journal.durable(self.log.ticket)
        await self.run(False, self.log.record)

    def record_if_ended(self) -> None:
        """Complete the recording of an episode that has ended, in the background."""
        if self.log.has_unrecorded_steps and self.session.lifecycle.value in ("terminated", "truncated"):
            self._context.record_later(self)

    def step(self, data: dict[str, Any], key: RequestKey | None = None) -> bytes:
        form, session = self.form, self.session
        try:
            action = self.environment.read_action(data)
        except ValidationError as error:
            if form.action_text(data) is None or session.lifecycle.value != "ready":
                raise
            return encode(form.reply(session, session.timestep, error=str(error)))
        log, recordings, size = self.log, self._context.recordings, len(encode(data))
        log.check_room(size)
        directly = recordings.records and log.records_directly
        restore_point = None
        if recordings.records:
            restore_point = recordings.restore_point("step", session, log.recording_number, directly)
        if restore_point is None and log.memory.full and self.environment.replayable:
            restore_point = session.restore_point()  # the entries in memory do not lead here
        step_count = session.step_count
        try:
            timestep = session.step(action)
            if not isfinite(timestep.reward):
                raise ObservationError("reward", timestep.reward, "a finite number")
            done, reply = timestep.terminated or timestep.truncated, encode(form.reply(session, timestep))
            entry = Entry("step", data, timestep.reward, done, form.digest(timestep), key, session.recorded_outcome())
        except BaseException:
            self.mark_damaged(session, session.step_count != step_count, restore_point)
            raise

        try:  # as `hold_write_lock`, without its calls: most requests are steps
            with self.write_lock:
                if session is not self.session:
                    raise errors.late_step_error()
                if directly:
                    recordings.record_step(self.environment.id, session, log.recording_number, action, timestep)
                log.append((entry,), periodic_snapshot(session, self._snapshot_every), size)
                self.steps_written += 1
        except BaseException:
            self.rollback(session, restore_point)
            raise
        return reply

    def resume(self) -> None:
        """Restore the session from its claim, after an eviction or a crash."""
        self.session = restore_session(self.environment, self.log.load(), self._add_reply)

    def _add_reply(self, entry: Entry, session: Session) -> None:
        """Keep the reply to a replayed entry for repeated requests."""
        assert entry.request is not None
        reply, begin = self.form.reply(session, session.timestep), entry.kind == "reset"
        encoded = encode(self.reset_reply(reply, entry.payload["episode_id"]) if begin else reply)
        self.log.memory.add_reply(entry.request, encoded)

    def state(self, data: dict[str, Any]) -> bytes:
        convert(data, EmptyRequest)
        return encode(self.session.state_fields() | session_state(self.session))

    def snapshot(self, data: dict[str, Any]) -> bytes:
        convert(data, EmptyRequest)
        snapshot, snapshot_id = self.session.snapshot(), secrets.token_urlsafe(8)
        self.log.append_snapshot(snapshot_id, snapshot)
        return encode({"snapshot_id": snapshot_id, **session_state(self.session)})

    def fork(self, data: dict[str, Any]) -> bytes:
        request = convert(data, ForkRequest)
        self.log.check_room_for_fork()
        make_fork = partial(fork_from_origin, self, self.session, self.log.memory, request)
        forked = fork(self._context, self.environment, self.owner, make_fork, request.seed)
        if self.log.ticket.error is None:
            self.log.ticket = forked.log.ticket  # the reply waits for the entries of the fork
        return fork_reply(forked)

    def restore(self, data: dict[str, Any]) -> bytes:
        origin, context, old = convert(data, RestoreRequest).origin, self._context, self.session
        session, (begin, *steps) = restore_snapshot(self.log.memory, self.environment, origin)
        try:
            number = context.recordings.record_fork(self.environment.id, session, begin, None)
            snapshot = session.snapshot()
            with self.hold_write_lock(old):
                self.session = session
                self.log.begin_episode((begin.with_payload(number), *steps), snapshot)
        except BaseException:
            session.close()
            raise
        old.close()
        return encode(self.reset_reply(self.form.reply(session, session.timestep), session.episode_id))

    def entries(self) -> list[Entry]:
        """The entries of the current episode, beginning with its reset."""
        entries = self.log.memory.entries()
        if not entries:
            raise StateError("lifecycle", "created", "an episode", "the session has no episode before its first reset")
        return entries

    def episode_number(self) -> int:
        """Counts resets and restores; `entries` are those of this episode."""
        return self.log.episodes_started

    def compare(self, session: Session, entry: Entry) -> None:
        compare_reward(session, entry)

    def status(self) -> tuple[str, int]:
        """Lifecycle, and steps taken."""
        return self.session.lifecycle.value, self.session.step_count

    def history(self, data: dict[str, Any]) -> bytes:
        return encode(history(self.entries(), data, self.session.step_count))

    def close(self) -> None:
        self.session.close()


Operation = Callable[[LiveSession, dict[str, Any], RequestKey | None], bytes]

OPERATIONS: dict[str, Operation] = {
    "reset": LiveSession.reset,
    "step": LiveSession.step,
    "state": lambda session, data, _: session.state(data),
    "snapshot": lambda session, data, _: session.snapshot(data),
    "fork": lambda session, data, _: session.fork(data),
    "restore": lambda session, data, _: session.restore(data),
    "history": lambda session, data, _: session.history(data),
    **FILE_OPERATIONS,
}
NOT_REPLAYED = ("snapshot", "fork", "restore", "write_file")  # a replay of the episode does not reproduce their replies
INLINE_KINDS = ("reset", "step", "state")  # the cost of the others grows with the episode, for host environments


def unknown_type(kind: str) -> ServerError:
    return ServerError("UNKNOWN_TYPE", f"unknown type {shorten(kind)}; expected one of {', '.join(OPERATIONS)}, close")
