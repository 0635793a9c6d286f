"""A live session: performs requests and returns their replies as JSON."""

import asyncio
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar
from zlib import crc32

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
    restore_snapshot,
    save_snapshot,
)
from tropism.serve.session.history import history
from tropism.serve.session.idempotency import reply_once, request_key, with_digest
from tropism.serve.session.json_form import session_state
from tropism.serve.session.lock import SessionLock
from tropism.serve.session.replay import checkpoint, restore_session
from tropism.serve.session.requests import EmptyRequest, convert, parse_history, parse_reset
from tropism.serve.storage.protocol import Entry, RequestKey, wait_durable
from tropism.wire.codec import encode

WATCH_ID_BYTES = 9
LONGEST_WAIT = 86_400.0  # seconds
LONG_EPISODE = 1000  # entries; writing a fork of a longer episode is slow

T = TypeVar("T")


class LiveSession:
    """A session, its owner, and the number of sockets attached to it. Performs one request at a time."""

    __slots__ = (
        "_context",
        "_recording_number",
        "_write_lock",
        "environment",
        "episodes_started",
        "id",
        "lock",
        "opened_at",
        "owner",
        "session",
        "sockets",
        "steps_written",
        "used_at",
        "write_failed",
    )

    def __init__(self, id: str, environment: ServedEnvironment, owner: str, session: Session, context: ServerContext):
        self.id = id
        self.environment = environment
        self.owner = owner
        self.session = session
        self.sockets = 0
        self.write_failed = False  # an entry could not be stored; the session has been evicted
        self.steps_written = 0
        self.episodes_started = 0
        self.opened_at = self.used_at = time.monotonic()
        self._context = context
        self._recording_number: int | None = None
        self._write_lock = threading.Lock()  # orders the write of a step and its timeout
        self.lock = SessionLock()

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
        if not self.environment.inline or self.lock.locked:
            return False
        if kind in INLINE_KINDS:
            return True
        long = isinstance(data.get("from"), dict) or len(self._context.store.episode(self.id)) > LONG_EPISODE
        return kind in OPERATIONS and self.environment.env.pure and not long

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
        reply = await self.run(self.can_run_inline(kind, data), self._perform_once, kind, data, request_id)
        await self._wait_durable()
        return reply

    async def _wait_durable(self) -> None:
        await wait_durable(self._context.store)
        if self.write_failed:  # in a commit before this wait began
            raise ServerError("JOURNAL_ERROR", "not applied: the journal could not be written")

    def perform_inline(self, kind: str, data: dict[str, Any], request_id: str | None) -> bytes:
        """As `perform`, if `can_run_inline`; the caller waits for durability."""
        self.used_at = time.monotonic()
        return OPERATIONS[kind](self, data, None) if request_id is None else self._perform_once(kind, data, request_id)

    def _perform_once(self, kind: str, data: dict[str, Any], request_id: str | None) -> bytes:
        if request_id is None:
            return OPERATIONS[kind](self, data, None)
        request, perform = request_key(request_id, kind, data), partial(OPERATIONS[kind], self, data)
        return reply_once(self._context.store, self.id, request, perform, reproducible=kind not in NOT_REPLAYED)

    async def step_within(self, seconds: float, data: dict[str, Any], request_id: str | None) -> bytes:
        """A step with a timeout: one that takes longer is rolled back.

        If the environment cannot be rolled back, the timeout is ignored.
        """
        can_roll_back = self.environment.env.traits.replayable
        if self.environment.inline or not can_roll_back or self.session.lifecycle.value != "ready":
            return await self.perform("step", data, request_id)
        return await asyncio.shield(asyncio.ensure_future(self._step_within(seconds, data, request_id)))

    async def _step_within(self, seconds: float, data: dict[str, Any], request_id: str | None) -> bytes:
        async with self.lock.lock():
            restore, stepping, steps_written = self.session.restore_point(), self.session, self.steps_written
            step = asyncio.ensure_future(self._in_thread(self._step_if_current, stepping, data, request_id))
            await asyncio.wait({step}, timeout=min(seconds, LONGEST_WAIT))
            with self._write_lock:
                in_time = step.done() or self.steps_written != steps_written or self.write_failed
                if not in_time:
                    self.session = stepping.new_like()
            if in_time:
                reply = await step
                await self._wait_durable()
                return reply
            step.add_done_callback(lambda done: done.cancelled() or (done.exception(), stepping.close()))
            if self.environment.env.traits.interruptible:
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
        encoded, digest = encode(self.reset_reply(reply)), crc32(encode(reply))

        def write() -> None:
            payload.update(recordings.record_reset(self, request.options, timestep))
            self._context.store.append(self.id, (Entry("reset", payload, timestep.reward, False, digest, key),))
            self._recording_number = payload.get(RECORDING_KEY)
            self.episodes_started += 1

        self._write_or_rollback(session, write, restore_point)
        return encoded

    def reset_reply(self, reply: dict[str, Any]) -> dict[str, Any]:
        """The reply to a reset, with the ids of this session."""
        return reply | {"session_id": self.id, "view": self.watch_id, "environment": self.environment.id}

    @property
    def recording_number(self) -> int | None:
        """The number of the current episode's recording; read from the store after `resume`."""
        if self._recording_number is None and (entries := self._context.store.episode(self.id)):
            self._recording_number = entries[0].payload.get(RECORDING_KEY)
        return self._recording_number

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
        entry = Entry("step", data, timestep.reward, done, crc32(reply), key)

        def write() -> None:
            self._context.recordings.record_step(self, action, timestep)
            self._context.store.append(self.id, (entry,), checkpoint(session))
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
            self.write_failed = True
            lost, self.session = self.session, closed
        return lost

    def resume(self) -> None:
        """Restore the session from the store, after an eviction or a crash."""
        point = self._context.store.load(self.id)
        assert point is not None, "the registry found its record"
        self.session = restore_session(self.environment, point, self._cache_reply)
        entries, recordings = self._context.store.episode(self.id), self._context.recordings
        recorded = entries[0].payload.get(RECORDING_KEY) is not None
        if recorded and not recordings.has_episode(self.environment.id, entries):
            entries[0] = entries[0].with_payload({RECORDING_KEY: None})

    def _cache_reply(self, entry: Entry, reply: dict[str, Any]) -> None:
        """Cache a replayed reply for repeated requests."""
        if entry.request is not None:
            encoded = encode(self.reset_reply(reply) if entry.kind == "reset" else reply)
            self._context.store.cache_reply(self.id, entry.request.request_id, with_digest(entry.request, encoded))

    def state(self, data: dict[str, Any]) -> bytes:
        convert(data, EmptyRequest)
        return encode(session_state(self.session))

    def snapshot(self, data: dict[str, Any]) -> bytes:
        convert(data, EmptyRequest)
        snapshot_id = save_snapshot(self._context.store, self.id, self.session)
        return encode({"snapshot_id": snapshot_id, **session_state(self.session)})

    def fork(self, data: dict[str, Any]) -> bytes:
        request = convert(data, ForkRequest)
        make_fork = partial(fork_from_origin, self, self.session, self._context.store, self.id, request)
        return fork(self._context, self.environment, self.owner, make_fork, request.seed, self.id)

    def restore(self, data: dict[str, Any]) -> bytes:
        origin, context, old = convert(data, RestoreRequest).origin, self._context, self.session
        session, (begin, *steps) = restore_snapshot(context.store, self.id, self.environment, origin)
        try:
            number = context.recordings.record_fork(self.environment.id, session, begin, None)
            with self._write_lock:
                if old is not self.session:
                    raise errors.late_step_error()
                context.store.append(self.id, (begin.with_payload(number), *steps), session.snapshot())
                self.session = session
        except BaseException:
            session.close()
            raise
        old.close()
        self._recording_number = number.get(RECORDING_KEY)
        self.episodes_started += 1
        return encode(self.reset_reply(self.environment.form.reply(session, session.timestep)))

    def entries(self) -> list[Entry]:
        """The entries of the current episode, beginning with its reset."""
        entries = list(self._context.store.episode(self.id))
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
            snapshot = self.session.snapshot() if self.environment.env.traits.replayable else None
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
