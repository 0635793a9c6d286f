"""A live session: performs requests and returns their replies as JSON."""

import asyncio
import secrets
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

from tropism.core.session.session import Session
from tropism.errors import ServerError, StateError, ValidationError, shorten
from tropism.serve import errors
from tropism.serve.recordings.protocol import RECORDING_KEY, RestorePoint
from tropism.serve.session.environment import ServedEnvironment, in_thread
from tropism.serve.session.fork import (
    ForkRequest,
    RestoreRequest,
    ServerContext,
    fork,
    fork_from_origin,
    fork_reply,
    restore_snapshot,
)
from tropism.serve.session.history import history
from tropism.serve.session.idempotency import reply_once, request_key
from tropism.serve.session.json_form import session_state
from tropism.serve.session.lock import SessionLock
from tropism.serve.session.replay import checkpoint, restore_session
from tropism.serve.session.requests import EmptyRequest, convert, parse_history, parse_reset
from tropism.serve.storage.protocol import DURABLE, Claim, Entry, RecoveryPoint, RequestKey, Ticket
from tropism.serve.storage.working_memory import WorkingMemory, reply_note, snapshot_note
from tropism.wire.codec import encode

WATCH_ID_BYTES = 9
LONGEST_WAIT = 86_400.0  # seconds
LONG_EPISODE = 1000  # entries; writing a fork of a longer episode is slow

T = TypeVar("T")


class LiveSession:
    """A session, its owner, and the number of sockets attached to it. Performs one request at a time."""

    __slots__ = (
        "_context",
        "_write_lock",
        "claim",
        "environment",
        "episodes_started",
        "id",
        "lock",
        "memory",
        "opened_at",
        "recorded_steps",
        "records_directly",
        "session",
        "sockets",
        "steps_written",
        "ticket",
        "used_at",
    )

    def __init__(self, id: str, environment: ServedEnvironment, session: Session, context: ServerContext, claim: Claim):
        self.id = id
        self.environment = environment
        self.session = session
        self.claim = claim
        self.memory = WorkingMemory(context.settings.session_limits)
        self.ticket: Ticket = DURABLE  # of the last entries
        self.sockets = 0
        self.steps_written = 0
        self.episodes_started = 0
        self.recorded_steps = 0
        self.records_directly = not (context.journal.survives_crashes and environment.replayable)
        self.opened_at = self.used_at = time.monotonic()
        self._context = context
        self._write_lock = threading.Lock()  # orders the write of a step and its timeout
        self.lock = SessionLock()

    @property
    def owner(self) -> str:
        return self.claim.record.owner

    @property
    def watch_id(self) -> str:
        """An id that permits inspecting and forking this session, but not stepping it."""
        return urlsafe_b64encode(blake2b(self.id.encode(), digest_size=WATCH_ID_BYTES).digest()).decode()

    @property
    def log_context(self) -> dict[str, Any]:
        """Fields that identify this session in log lines."""
        ids = {"session_id": self.id, "episode_id": self.session.episode_id}
        return ids | {"environment": self.environment.id}

    def can_run_inline(self, kind: str, data: dict[str, Any]) -> bool:
        """Whether this may run on the event loop: not if its cost grows with the episode, nor while another runs."""
        if not self.environment.inline or self.lock.locked or self._must_record(kind):
            return False
        if kind in INLINE_KINDS:
            return True
        long = isinstance(data.get("from"), dict) or len(self.memory) > LONG_EPISODE
        return kind in OPERATIONS and self.environment.env.traced and not long

    async def run(self, inline: bool, function: Callable[..., T], *arguments: Any) -> T:
        """Call `function` on the event loop if `inline`, otherwise in a thread under the session's lock."""
        self.used_at = time.monotonic()
        if inline:
            return function(*arguments)
        return await self.lock.run(lambda: self._run(function, *arguments))

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        try:
            if arguments[:1] == ("fork",):
                return await self._context.replay_pool.run(function, *arguments)
            return await self._in_thread(function, *arguments)
        finally:
            self.used_at = time.monotonic()

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await in_thread(self._context.threads, function, *arguments)

    async def perform(self, kind: str, data: dict[str, Any], request_id: str | None = None) -> bytes:
        """Perform a request and return its reply once it is durable; a repeated request id returns the first reply."""
        if kind not in OPERATIONS:
            raise unknown_type(kind)
        if self._must_record(kind):
            await self.record()
        reply = await self.run(self.can_run_inline(kind, data), self._perform_once, kind, data, request_id)
        await self.wait_durable()
        return reply

    async def wait_durable(self) -> None:
        """Return when all entries of this session are durable; if they cannot be, it is evicted."""
        try:
            await self._context.journal.durable(self.ticket)
        except ServerError:
            self._context.evict_lost(self)
            raise
        self.record_if_ended()

    def perform_inline(self, kind: str, data: dict[str, Any], request_id: str | None) -> bytes:
        """As `perform`, if `can_run_inline`; the caller waits for durability."""
        self.used_at = time.monotonic()
        return OPERATIONS[kind](self, data, None) if request_id is None else self._perform_once(kind, data, request_id)

    def _perform_once(self, kind: str, data: dict[str, Any], request_id: str | None) -> bytes:
        if request_id is None:
            return OPERATIONS[kind](self, data, None)
        request = request_key(request_id, kind, data)
        return reply_once(self.memory, request, partial(self._perform_and_store, kind, data, request))

    def _perform_and_store(self, kind: str, data: dict[str, Any], request: RequestKey) -> bytes:
        reply = OPERATIONS[kind](self, data, request)
        if kind in NOT_REPLAYED:
            self._append((reply_note(request, reply),))
        else:
            self.memory.add_reply(request, reply)
        return reply

    def _append(self, entries: Sequence[Entry], snapshot: bytes | None = None) -> None:
        """Append entries to the journal and the working memory; not to the journal after a failed write."""
        if self.ticket.error is None:
            self.ticket = self._context.journal.append(self.claim, entries, snapshot)
        for entry in entries:
            self.memory.append(entry)

    async def step_within(self, seconds: float, data: dict[str, Any], request_id: str | None) -> bytes:
        """A step with a timeout: one that takes longer is rolled back.

        If the environment cannot be rolled back, the timeout is ignored.
        """
        can_roll_back = self.environment.env.traced or self.environment.env.replayable
        if self.environment.inline or not can_roll_back or self.session.lifecycle.value != "ready":
            return await self.perform("step", data, request_id)
        return await asyncio.shield(asyncio.ensure_future(self._step_within(seconds, data, request_id)))

    async def _step_within(self, seconds: float, data: dict[str, Any], request_id: str | None) -> bytes:
        async with self.lock.lock():
            restore, stepping, steps_written = self.session.restore_point(), self.session, self.steps_written
            step = asyncio.ensure_future(self._in_thread(self._step_if_current, stepping, data, request_id))
            await asyncio.wait({step}, timeout=min(seconds, LONGEST_WAIT))
            with self._write_lock:
                in_time = step.done() or self.steps_written != steps_written or self.ticket.error is not None
                if not in_time:
                    self.session = stepping.new_like()
            if in_time:
                reply = await step
                await self.wait_durable()
                return reply
            step.add_done_callback(lambda done: done.cancelled() or (done.exception(), stepping.close()))
            if self.environment.env.interruptible:
                await self._in_thread(stepping.close)
            self.session = await self._in_thread(restore)
        raise ServerError("TIMEOUT", f"the step took longer than {seconds} s and was not applied")

    def _step_if_current(self, session: Session, data: dict[str, Any], request_id: str | None) -> bytes:
        """A step of `session`, unless a timeout replaced it while the step waited for a thread."""
        if session is not self.session:
            raise errors.late_step_error()
        return self._perform_once("step", data, request_id)

    def reset(self, data: dict[str, Any], key: RequestKey | None = None) -> bytes:
        request, session, recordings = parse_reset(data), self.session, self._context.recordings
        restore_point = recordings.restore_point("reset", self)
        timestep = session.reset(seed=request.seed, options=request.options, episode_id=request.episode_id)
        payload: dict[str, Any] = {"seed": session.seed, "options": request.options, "episode_id": session.episode_id}
        reply = self.environment.form.reply(session, timestep)
        encoded, digest = encode(self.reset_reply(reply)), self.environment.form.digest(timestep)

        def write() -> None:
            payload.update(recordings.record_reset(self, request.options, timestep))
            self.begin_episode((Entry("reset", payload, timestep.reward, False, digest, key),))

        self._write_or_rollback(session, write, restore_point)
        return encoded

    def begin_episode(self, entries: Sequence[Entry], snapshot: bytes | None = None) -> None:
        """Append the entries of a new episode; those of a fork or a restore have already been recorded."""
        self._append(entries, snapshot)
        self.episodes_started += 1
        self.recorded_steps = self.session.step_count
        self.records_directly = not (self._context.journal.survives_crashes and self.environment.replayable)

    def reset_reply(self, reply: dict[str, Any]) -> dict[str, Any]:
        """The reply to a reset, with the ids of this session."""
        return reply | {"session_id": self.id, "view": self.watch_id, "environment": self.environment.id}

    @property
    def recording_number(self) -> int | None:
        """The number of the current episode's recording."""
        begin = self.memory.begin
        return None if begin is None else begin.payload.get(RECORDING_KEY)

    def _must_record(self, kind: str) -> bool:
        """Whether the episode must be recorded first: it is about to be deleted or forked, or its history is full."""
        return self.unrecorded and (kind in ("reset", "restore", "fork") or self.memory.full)

    @property
    def unrecorded(self) -> bool:
        """Whether the recording of this episode lacks steps, which are written from the journal's entries."""
        if not self._context.recordings.records or self.records_directly or self.recording_number is None:
            return False
        return self.session.step_count > self.recorded_steps

    def record_if_ended(self) -> None:
        if self.unrecorded and self.session.lifecycle.value in ("terminated", "truncated"):
            self._context.record_later(self)

    async def record(self) -> None:
        """Complete the recording of this episode, once its entries are durable."""
        await self._context.journal.durable(self.ticket)
        await self.run(False, self._record)

    def _record(self) -> None:
        if self.unrecorded:
            self._context.recordings.record_episode(self.environment, self.entries(), self.recorded_steps)
            self.recorded_steps = self.session.step_count
            self.records_directly = self.memory.full

    def step(self, data: dict[str, Any], key: RequestKey | None = None) -> bytes:
        form, session = self.environment.form, self.session
        text = form.action_text(data)
        try:
            action = form.action(data) if text is None else session.parse(text)
        except ValidationError as error:
            if text is None or session.lifecycle.value != "ready":
                raise
            return encode(form.reply(session, session.timestep, error=str(error)))
        restore_point = self._context.recordings.restore_point("step", self)
        timestep = session.step(action)
        done = timestep.terminated or timestep.truncated
        reply = encode(form.reply(session, timestep))
        entry = Entry("step", data, timestep.reward, done, form.digest(timestep), key)

        def write() -> None:
            self._context.recordings.record_step(self, action, timestep)
            self._append((entry,), checkpoint(session, self._context.settings.session_limits.checkpoint_every))
            self.steps_written += 1

        self._write_or_rollback(session, write, restore_point)
        return reply

    def _write_or_rollback(
        self, session: Session, write: Callable[[], None], restore_point: RestorePoint | None
    ) -> None:
        try:
            with self._write_lock:
                if session is not self.session:
                    raise errors.late_step_error()
                write()
        except BaseException:
            self._rollback(session, restore_point)
            raise

    def _rollback(self, session: Session, restore_point: RestorePoint | None) -> None:
        """Undo a reset or step that could not be written; without a restore point, the episode ends."""
        if session is not self.session:
            return
        restored = session.new_like()
        try:
            session.close()
            restored = restored if restore_point is None else restore_point()
        finally:
            with self._write_lock:
                replaced = session is not self.session
                if not replaced:
                    self.session = restored
            if replaced:  # the step timed out and was rolled back by `_step_within`
                restored.close()

    def evict_lost(self) -> Session:
        """Close this session after a failed write, so that the next request reloads it from the store.

        Returns the environment session, which the caller closes.
        """
        closed = self.session.new_like()
        closed.close()
        with self._write_lock:
            lost, self.session = self.session, closed
        return lost

    def resume(self) -> None:
        """Restore the session from its claim, after an eviction or a crash."""
        point, self.claim = self.claim.point, self.claim._replace(point=RecoveryPoint())
        for entry in point.before:
            self.memory.append(entry)
            if entry.request is not None and not entry.is_note:
                self.memory.mark_dropped(entry.request.request_id)
        for entry in point.after:
            self.memory.append(entry)
        self.session = restore_session(self.environment, point, self._add_reply)
        self._resume_recording()

    def _resume_recording(self) -> None:
        if self.recording_number is None:
            return
        recorded = self._context.recordings.recorded_steps(self.environment.id, self.entries())
        if recorded is None:
            self.memory.amend_begin({RECORDING_KEY: None})
        else:
            self.recorded_steps = recorded
            self.records_directly |= self.memory.full and not self.unrecorded

    def _add_reply(self, entry: Entry, reply: dict[str, Any]) -> None:
        """Keep a replayed reply for repeated requests."""
        assert entry.request is not None
        encoded = encode(self.reset_reply(reply) if entry.kind == "reset" else reply)
        self.memory.add_reply(entry.request, encoded)

    def state(self, data: dict[str, Any]) -> bytes:
        convert(data, EmptyRequest)
        return encode(session_state(self.session))

    def snapshot(self, data: dict[str, Any]) -> bytes:
        convert(data, EmptyRequest)
        snapshot, snapshot_id = self.session.snapshot(), secrets.token_urlsafe(8)
        self.memory.check_room(snapshot)
        self._append((snapshot_note(snapshot_id, snapshot),))
        return encode({"snapshot_id": snapshot_id, **session_state(self.session)})

    def fork(self, data: dict[str, Any]) -> bytes:
        request = convert(data, ForkRequest)
        make_fork = partial(fork_from_origin, self, self.session, self.memory, request)
        forked = fork(self._context, self.environment, self.owner, make_fork, request.seed)
        if self.ticket.error is None:
            self.ticket = forked.ticket  # the reply waits for the entries of the fork
        return fork_reply(forked)

    def restore(self, data: dict[str, Any]) -> bytes:
        origin, context, old = convert(data, RestoreRequest).origin, self._context, self.session
        session, (begin, *steps) = restore_snapshot(self.memory, self.environment, origin)
        try:
            number = context.recordings.record_fork(self.environment.id, session, begin, None)
            snapshot = session.snapshot()
            with self._write_lock:
                if old is not self.session:
                    raise errors.late_step_error()
                self.session = session
                self.begin_episode((begin.with_payload(number), *steps), snapshot)
        except BaseException:
            session.close()
            raise
        old.close()
        return encode(self.reset_reply(self.environment.form.reply(session, session.timestep)))

    def entries(self) -> list[Entry]:
        """The entries of the current episode, beginning with its reset."""
        entries = self.memory.entries()
        if not entries:
            raise StateError("lifecycle", "created", "an episode", "the session has no episode before its first reset")
        return entries

    def episode_number(self) -> int:
        """Counts resets and restores; `entries` are those of this episode."""
        return self.episodes_started

    def check(self, session: Session) -> None:
        """No check: of a live episode only rewards are stored, and the replay compares those itself."""

    def status(self) -> tuple[str, int]:
        """Lifecycle, and steps taken."""
        return self.session.lifecycle.value, self.session.step_count

    def history(self, data: dict[str, Any]) -> bytes:
        return encode(history(self.entries(), parse_history(data), self.session.step_count))

    def close(self) -> None:
        self.session.close()

    def evict(self) -> bytes | None:
        """Close the session and return a snapshot to resume from; None if it cannot be resumed."""
        try:
            snapshot = self.session.snapshot() if self.environment.env.replayable else None
        except StateError:
            snapshot = None
        self.session.close()
        return snapshot


Operation = Callable[[LiveSession, dict[str, Any], RequestKey | None], bytes]

OPERATIONS: dict[str, Operation] = {
    "reset": LiveSession.reset,
    "step": LiveSession.step,
    "state": lambda session, data, _: session.state(data),
    "snapshot": lambda session, data, _: session.snapshot(data),
    "fork": lambda session, data, _: session.fork(data),
    "restore": lambda session, data, _: session.restore(data),
    "history": lambda session, data, _: session.history(data),
}
NOT_REPLAYED = ("snapshot", "fork", "restore")  # a replay of the episode does not reproduce their replies
INLINE_KINDS = ("reset", "step", "state")  # the cost of the others grows with the episode, for host environments


def unknown_type(kind: str) -> ServerError:
    return ServerError("UNKNOWN_TYPE", f"unknown type {shorten(kind)}; expected one of {', '.join(OPERATIONS)}, close")
