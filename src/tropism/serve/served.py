"""One session behind a server: every request that can be made of it, and its reply as JSON."""

import asyncio
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import closing
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

from tropism.core.session import Session
from tropism.errors import ServerError, StateError, ValidationError, shorten
from tropism.serve import branch
from tropism.serve.asked import Nothing, convert, history_from, reset_from
from tropism.serve.environment import ServedEnvironment, in_thread
from tropism.serve.form import state_json
from tropism.serve.once import once
from tropism.serve.recordings import KEY, Back
from tropism.serve.store import Entry
from tropism.wire.codec import encode

VIEW = 9  # bytes
LONGEST_WAIT = 86_400.0  # seconds

T = TypeVar("T")


class ServedSession:
    """A session, who may use it, and whether a socket holds it. One request at a time."""

    __slots__ = (
        "_home",
        "_lock",
        "_number",
        "_writing",
        "attached",
        "begun",
        "environment",
        "id",
        "opened",
        "owner",
        "session",
        "used",
        "written",
    )

    def __init__(self, id: str, environment: ServedEnvironment, owner: str, session: Session, home: branch.Home):
        self.id = id
        self.environment = environment
        self.owner = owner
        self.session = session
        self.attached = 0
        self.written = 0  # steps
        self.begun = 0  # episodes
        self.opened = self.used = time.monotonic()
        self._home = home
        self._number: int | None = None
        self._writing = threading.Lock()  # held while a step is written down: it is either in time or too late
        self._lock: asyncio.Lock | None = None  # made when a step runs in a thread

    @property
    def view(self) -> str:
        """The name that allows to look at this session and to fork it, not to step it."""
        return urlsafe_b64encode(blake2b(self.id.encode(), digest_size=VIEW).digest()).decode()

    @property
    def named(self) -> dict[str, Any]:
        """What a line of the log says of this session."""
        ids = {"session_id": self.id, "episode_id": self.session.episode_id}
        return ids | {"environment": self.environment.id}

    def quick(self, kind: str, data: dict[str, Any]) -> bool:
        """Whether this can be done at once: what an episode's length decides, cannot, nor while something is done."""
        if not self.environment.inline or self.busy:
            return False
        if kind in QUICK:
            return True
        return kind in PERFORMED and self.environment.env.traced and not isinstance(data.get("from"), dict)

    async def run(self, quick: bool, function: Callable[..., T], *arguments: Any) -> T:
        """Call this at once where it is quick, otherwise in a thread; never two at a time."""
        self.used = time.monotonic()
        if quick:
            return function(*arguments)
        lock = self._turn()
        await lock.acquire()
        run = self._home.replays.run if arguments[:1] == ("fork",) else self._in_thread
        work = asyncio.ensure_future(run(function, *arguments))
        work.add_done_callback(lambda _: self._release(lock))
        return await asyncio.shield(work)  # a caller that gives up does not let another in

    def _release(self, lock: asyncio.Lock) -> None:
        self.used = time.monotonic()
        lock.release()

    def _turn(self) -> asyncio.Lock:
        self._lock = self._lock or asyncio.Lock()
        return self._lock

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await in_thread(self._home.threads, function, *arguments)

    @property
    def busy(self) -> bool:
        """Whether a step runs in a thread."""
        return self._lock is not None and self._lock.locked()

    async def idle(self) -> None:
        if self._lock is not None:
            async with self._lock:
                return

    async def perform(self, kind: str, data: dict[str, Any], request_id: str | None = None) -> bytes:
        """The reply to one request; with a request id, the same reply however often it is asked for."""
        if kind not in PERFORMED:
            raise unknown_type(kind)
        return await self.run(self.quick(kind, data), self._once, kind, data, request_id)

    def perform_now(self, kind: str, data: dict[str, Any], request_id: str | None) -> bytes:
        """As `perform`, where that is quick."""
        self.used = time.monotonic()
        return PERFORMED[kind](self, data) if request_id is None else self._once(kind, data, request_id)

    def _once(self, kind: str, data: dict[str, Any], request_id: str | None) -> bytes:
        if request_id is None:
            return PERFORMED[kind](self, data)
        asked, perform = (kind, data), partial(PERFORMED[kind], self, data)
        return once(self._home.store, self.id, request_id, asked, perform)

    async def step_within(self, seconds: float, data: dict[str, Any], request_id: str | None) -> bytes:
        """A step that is not applied when it takes longer; the episode goes on as if it had not been asked for.

        One that cannot be replayed cannot be taken back: there, the step is waited for.
        """
        can_go_back = self.environment.env.traced or self.environment.env.replayable
        if self.environment.inline or not can_go_back or self.session.lifecycle.value != "ready":
            return await self.perform("step", data, request_id)
        return await asyncio.shield(asyncio.ensure_future(self._step_within(seconds, data, request_id)))

    async def _step_within(self, seconds: float, data: dict[str, Any], request_id: str | None) -> bytes:
        async with self._turn():
            before, late, written = self.session.moment(), self.session, self.written
            step = asyncio.ensure_future(self._in_thread(self._once_in, late, data, request_id))
            await asyncio.wait({step}, timeout=min(seconds, LONGEST_WAIT))
            with self._writing:
                in_time = step.done() or self.written != written
                if not in_time:
                    self.session = late.sibling()
            if in_time:
                return await step
            step.add_done_callback(lambda done: done.cancelled() or (done.exception(), late.close()))
            if self.environment.env.interruptible:
                await self._in_thread(late.close)
            self.session = await self._in_thread(before)
        raise ServerError("TIMEOUT", f"the step took longer than {seconds} s and was not applied")

    def _once_in(self, session: Session, data: dict[str, Any], request_id: str | None) -> bytes:
        """A step of this very session: one that waited too long for a thread finds another in its place."""
        if session is not self.session:
            raise _too_late()
        return self._once("step", data, request_id)

    def reset(self, data: dict[str, Any]) -> bytes:
        asked, session, recordings = reset_from(data), self.session, self._home.recordings
        back = recordings.before("reset", self)
        timestep = session.reset(seed=asked.seed, options=asked.options, episode_id=asked.episode_id)
        payload: dict[str, Any] = {"seed": session.seed, "options": asked.options, "episode_id": session.episode_id}
        reply = self.environment.form.reply(session, timestep)
        written = encode(reply | {"session_id": self.id, "view": self.view, "environment": self.environment.id})
        try:
            payload |= recordings.begun(self, asked.options, timestep)
        except BaseException:
            self._go_back(session, back)
            raise
        self._number = payload.get(KEY)
        self._home.store.append(self.id, Entry("reset", payload, timestep.reward, False))
        self.begun += 1
        return written

    @property
    def number(self) -> int | None:
        """Of the current episode among the recordings; a session that was put away has it in its store."""
        if self._number is None and (entries := self._home.store.episode(self.id)):
            self._number = entries[0].payload.get(KEY)
        return self._number

    def step(self, data: dict[str, Any]) -> bytes:
        form, session = self.environment.form, self.session
        words = form.words(data)
        try:
            action = form.action(data) if words is None else session.parse(words)
        except ValidationError as error:
            if words is None or session.lifecycle.value != "ready":
                raise
            return encode(form.reply(session, session.timestep, error=str(error)))
        back = self._home.recordings.before("step", self)
        timestep = session.step(action)
        done = timestep.terminated or timestep.truncated
        reply = encode(form.reply(session, timestep))
        try:
            with self._writing:
                if session is not self.session:
                    raise _too_late()
                self._home.recordings.stepped(self, action, timestep)
                self._home.store.append(self.id, Entry("step", data, timestep.reward, done))
                self.written += 1
        except BaseException:
            self._go_back(session, back)
            raise
        return reply

    def _go_back(self, session: Session, back: Back | None) -> None:
        """What cannot be recorded has not happened; where there is no way back, the episode is over."""
        if session is not self.session:
            return
        earlier = session.sibling()
        try:
            session.close()
            earlier = earlier if back is None else back()
        finally:
            with self._writing:
                late = session is not self.session
                if not late:
                    self.session = earlier
            if late:  # whoever waited for this step went back as well
                earlier.close()

    def state(self, data: dict[str, Any]) -> bytes:
        convert(data, Nothing)
        return encode(state_json(self.session))

    def snapshot(self, data: dict[str, Any]) -> bytes:
        convert(data, Nothing)
        snapshot_id = branch.keep(self._home.store, self.id, self.session)
        return encode({"snapshot_id": snapshot_id, **state_json(self.session)})

    def fork(self, data: dict[str, Any]) -> bytes:
        asked = convert(data, branch.ForkData)
        return branch.fork(self._home, self.environment, self.owner, partial(self._branched, asked), asked.seed)

    def _branched(self, asked: branch.ForkData) -> tuple[Session, list[Entry]]:
        if isinstance(asked.origin, branch.Step):
            return branch.rewound(self, asked.origin.step, asked.seed)
        if asked.origin == "now":
            return self.session.fork(asked.seed), self.entries()
        origin, entries = branch.restored(self._home.store, self.id, self.environment, asked.origin)
        with closing(origin):
            return origin.fork(asked.seed), entries

    def restore(self, data: dict[str, Any]) -> bytes:
        origin, home = convert(data, branch.RestoreData).origin, self._home
        session, (begin, *steps) = branch.restored(home.store, self.id, self.environment, origin)
        try:
            number = home.recordings.forked(self.environment.id, session, begin, None)
        except BaseException:
            session.close()
            raise
        self.session, old = session, self.session
        old.close()
        self._number = number.get(KEY)
        for entry in (begin.adding(number), *steps):
            home.store.append(self.id, entry)
        self.begun += 1
        return encode(
            self.environment.form.reply(session, session.timestep) | {"session_id": self.id, "view": self.view}
        )

    def entries(self) -> list[Entry]:
        """What the current episode is made of, the reset first."""
        entries = list(self._home.store.episode(self.id))
        if not entries:
            raise StateError("lifecycle", "created", "an episode", "there is nothing to see before the first reset")
        return entries

    def episode(self) -> int:
        """Which one is told by `entries`: the first, the second, …; a restore begins one too."""
        return self.begun

    def check(self, session: Session) -> None:
        """Of what was lived through here, only rewards are kept to compare a replay with."""

    def standing(self) -> tuple[str, int]:
        """Lifecycle, and steps taken."""
        return self.session.lifecycle.value, self.session.step_count

    def history(self, data: dict[str, Any]) -> bytes:
        start = history_from(data)
        begin, *steps = self.entries()
        rows = [_row(step) for step in steps[start:]]
        whole = sum(step.kind == "step" for step in steps) == self.session.step_count
        return encode({**begin.payload, "from": start, "steps": rows, "whole": whole})

    def close(self) -> None:
        self.session.close()

    def put_away(self) -> bytes | None:
        """A snapshot to go on from; None where there is nothing to go on from, or no way to."""
        try:
            snapshot = self.session.snapshot() if self.environment.env.replayable else None
        except StateError:
            snapshot = None
        self.session.close()
        return snapshot

    def row(self) -> dict[str, Any]:
        return {
            "view": self.view,  # whoever knows the id may step
            "environment": self.environment.id,
            "lifecycle": self.session.lifecycle.value,
            "attached": self.attached > 0,
            "total_reward": self.session.total_reward,
            "age": time.monotonic() - self.opened,
            "idle": time.monotonic() - self.used,
            **state_json(self.session),
        }


PERFORMED: dict[str, Callable[[ServedSession, dict[str, Any]], bytes]] = {
    "reset": ServedSession.reset,
    "step": ServedSession.step,
    "state": ServedSession.state,
    "snapshot": ServedSession.snapshot,
    "fork": ServedSession.fork,
    "restore": ServedSession.restore,
    "history": ServedSession.history,
}


QUICK = ("reset", "step", "state")  # the others take the longer, the longer the episode of a host environment


def _row(entry: Entry) -> dict[str, Any]:
    """A step of a history; a fork with a seed of its own says from where on it was drawn from."""
    if entry.kind == "reseed":
        return {"seed": entry.payload["seed"]}
    return {"action": entry.payload, "reward": entry.reward, "done": entry.done}


def _too_late() -> StateError:
    return StateError("step", "late", "one in time", "the step came too late and is not applied")


def unknown_type(kind: str) -> ServerError:
    return ServerError("UNKNOWN_TYPE", f"unknown type {shorten(kind)}; expected one of {', '.join(PERFORMED)}, close")
