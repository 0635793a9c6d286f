"""One session behind a server: every request that can be made of it, and its reply as JSON."""

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
from tropism.serve import errors as refusal
from tropism.serve.recordings.protocol import KEY, Back
from tropism.serve.session import fork as branch
from tropism.serve.session.environment import ServedEnvironment, in_thread
from tropism.serve.session.history import history
from tropism.serve.session.idempotency import asked_under, once, to_keep
from tropism.serve.session.json_form import state_json
from tropism.serve.session.lock import Turns
from tropism.serve.session.replay import checkpoint, revived
from tropism.serve.session.requests import Nothing, convert, history_from, reset_from
from tropism.serve.storage.protocol import Asked, Entry, settled
from tropism.wire.codec import encode

VIEW = 9  # bytes
LONGEST_WAIT = 86_400.0  # seconds
LONG = 1000  # entries of an episode: to write a fork of it takes a while

T = TypeVar("T")


class ServedSession:
    """A session, who may use it, and whether a socket holds it. One request at a time."""

    __slots__ = (
        "_home",
        "_number",
        "_writing",
        "attached",
        "begun",
        "environment",
        "id",
        "lost",
        "opened",
        "owner",
        "session",
        "turns",
        "used",
        "written",
    )

    def __init__(self, id: str, environment: ServedEnvironment, owner: str, session: Session, home: branch.Home):
        self.id = id
        self.environment = environment
        self.owner = owner
        self.session = session
        self.attached = 0
        self.lost = False  # something it did could not be kept
        self.written = 0  # steps
        self.begun = 0  # episodes
        self.opened = self.used = time.monotonic()
        self._home = home
        self._number: int | None = None
        self._writing = threading.Lock()  # held while a step is written down: it is either in time or too late
        self.turns = Turns()

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
        if not self.environment.inline or self.turns.taken:
            return False
        if kind in QUICK:
            return True
        long = isinstance(data.get("from"), dict) or len(self._home.store.episode(self.id)) > LONG
        return kind in PERFORMED and self.environment.env.traced and not long

    async def run(self, quick: bool, function: Callable[..., T], *arguments: Any) -> T:
        """Call this at once where it is quick, otherwise in a thread; never two at a time."""
        self.used = time.monotonic()
        if quick:
            return function(*arguments)
        return await self.turns.take(lambda: self._run(function, *arguments))

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        try:
            if arguments[:1] == ("fork",):
                return await self._home.replays.run(function, *arguments)
            return await self._in_thread(function, *arguments)
        finally:
            self.used = time.monotonic()

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await in_thread(self._home.threads, function, *arguments)

    async def perform(self, kind: str, data: dict[str, Any], request_id: str | None = None) -> bytes:
        """The reply to one request; with a request id, the same reply however often it is asked for."""
        if kind not in PERFORMED:
            raise unknown_type(kind)
        reply = await self.run(self.quick(kind, data), self._once, kind, data, request_id)
        await self._settled()
        return reply

    async def _settled(self) -> None:
        await settled(self._home.store)
        if self.lost:  # by a commit that came before anybody waited for it
            raise ServerError("JOURNAL_ERROR", "not done: it could not be written")

    def perform_now(self, kind: str, data: dict[str, Any], request_id: str | None) -> bytes:
        """As `perform`, where that is quick."""
        self.used = time.monotonic()
        return PERFORMED[kind](self, data, None) if request_id is None else self._once(kind, data, request_id)

    def _once(self, kind: str, data: dict[str, Any], request_id: str | None) -> bytes:
        if request_id is None:
            return PERFORMED[kind](self, data, None)
        asked, perform = asked_under(request_id, kind, data), partial(PERFORMED[kind], self, data)
        return once(self._home.store, self.id, asked, perform, replayed=kind not in BRANCHED)

    async def step_within(self, seconds: float, data: dict[str, Any], request_id: str | None) -> bytes:
        """A step that is not applied when it takes longer; the episode goes on as if it had not been asked for.

        One that cannot be replayed cannot be taken back: there, the step is waited for.
        """
        can_go_back = self.environment.env.traced or self.environment.env.replayable
        if self.environment.inline or not can_go_back or self.session.lifecycle.value != "ready":
            return await self.perform("step", data, request_id)
        return await asyncio.shield(asyncio.ensure_future(self._step_within(seconds, data, request_id)))

    async def _step_within(self, seconds: float, data: dict[str, Any], request_id: str | None) -> bytes:
        async with self.turns.turn():
            before, late, written = self.session.restore_point(), self.session, self.written
            step = asyncio.ensure_future(self._in_thread(self._once_in, late, data, request_id))
            await asyncio.wait({step}, timeout=min(seconds, LONGEST_WAIT))
            with self._writing:
                in_time = step.done() or self.written != written or self.lost
                if not in_time:
                    self.session = late.new_like()
            if in_time:
                reply = await step
                await self._settled()
                return reply
            step.add_done_callback(lambda done: done.cancelled() or (done.exception(), late.close()))
            if self.environment.env.interruptible:
                await self._in_thread(late.close)
            self.session = await self._in_thread(before)
        raise ServerError("TIMEOUT", f"the step took longer than {seconds} s and was not applied")

    def _once_in(self, session: Session, data: dict[str, Any], request_id: str | None) -> bytes:
        """A step of this very session: one that waited too long for a thread finds another in its place."""
        if session is not self.session:
            raise refusal.too_late()
        return self._once("step", data, request_id)

    def reset(self, data: dict[str, Any], asked: Asked | None = None) -> bytes:
        wanted, session, recordings = reset_from(data), self.session, self._home.recordings
        back = recordings.before("reset", self)
        timestep = session.reset(seed=wanted.seed, options=wanted.options, episode_id=wanted.episode_id)
        payload: dict[str, Any] = {"seed": session.seed, "options": wanted.options, "episode_id": session.episode_id}
        reply = self.environment.form.reply(session, timestep)
        written, digest = encode(self.beginning(reply)), crc32(encode(reply))

        def write() -> None:
            payload.update(recordings.begun(self, wanted.options, timestep))
            self._home.store.append(self.id, (Entry("reset", payload, timestep.reward, False, digest, asked),))
            self._number = payload.get(KEY)
            self.begun += 1

        self._write_down(session, write, back)
        return written

    def beginning(self, reply: dict[str, Any]) -> dict[str, Any]:
        """The reply to a reset, which says how this session is called."""
        return reply | {"session_id": self.id, "view": self.view, "environment": self.environment.id}

    @property
    def number(self) -> int | None:
        """Of the current episode among the recordings; a session that was put away has it in its store."""
        if self._number is None and (entries := self._home.store.episode(self.id)):
            self._number = entries[0].payload.get(KEY)
        return self._number

    def step(self, data: dict[str, Any], asked: Asked | None = None) -> bytes:
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
        entry = Entry("step", data, timestep.reward, done, crc32(reply), asked)

        def write() -> None:
            self._home.recordings.stepped(self, action, timestep)
            self._home.store.append(self.id, (entry,), checkpoint(session))
            self.written += 1

        self._write_down(session, write, back)
        return reply

    def _write_down(self, session: Session, write: Callable[[], None], back: Back | None) -> None:
        try:
            with self._writing:
                if session is not self.session:
                    raise refusal.too_late()
                write()
        except BaseException:
            self._go_back(session, back)
            raise

    def _go_back(self, session: Session, back: Back | None) -> None:
        """What cannot be recorded has not happened; where there is no way back, the episode is over."""
        if session is not self.session:
            return
        earlier = session.new_like()
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

    def lose(self) -> Session:
        """Be closed from now on: who comes takes the session up again from what is kept. The one that was here."""
        nobody = self.session.new_like()
        nobody.close()
        with self._writing:
            self.lost = True
            lost, self.session = self.session, nobody
        return lost

    def take_up(self) -> None:
        """Stand where this session stood when it was put away, or when another process died."""
        saved = self._home.store.load(self.id)
        assert saved is not None, "somebody has looked"
        self.session = revived(self.environment, saved, self._retell)
        entries, recordings = self._home.store.episode(self.id), self._home.recordings
        if entries[0].payload.get(KEY) is not None and not recordings.resumed(self.environment.id, entries):
            entries[0] = entries[0].adding({KEY: None})

    def _retell(self, entry: Entry, reply: dict[str, Any]) -> None:
        """Have the reply at hand, for who did not hear it."""
        if entry.asked is not None:
            told = encode(self.beginning(reply) if entry.kind == "reset" else reply)
            self._home.store.remember(self.id, entry.asked.request_id, to_keep(entry.asked, told))

    def state(self, data: dict[str, Any]) -> bytes:
        convert(data, Nothing)
        return encode(state_json(self.session))

    def snapshot(self, data: dict[str, Any]) -> bytes:
        convert(data, Nothing)
        snapshot_id = branch.keep(self._home.store, self.id, self.session)
        return encode({"snapshot_id": snapshot_id, **state_json(self.session)})

    def fork(self, data: dict[str, Any]) -> bytes:
        asked = convert(data, branch.ForkData)
        branched = partial(branch.branched, self, self.session, self._home.store, self.id, asked)
        return branch.fork(self._home, self.environment, self.owner, branched, asked.seed, self.id)

    def restore(self, data: dict[str, Any]) -> bytes:
        origin, home, old = convert(data, branch.RestoreData).origin, self._home, self.session
        session, (begin, *steps) = branch.restored(home.store, self.id, self.environment, origin)
        try:
            number = home.recordings.forked(self.environment.id, session, begin, None)
            with self._writing:
                if old is not self.session:
                    raise refusal.too_late()
                home.store.append(self.id, (begin.adding(number), *steps), session.snapshot())
                self.session = session
        except BaseException:
            session.close()
            raise
        old.close()
        self._number = number.get(KEY)
        self.begun += 1
        return encode(self.beginning(self.environment.form.reply(session, session.timestep)))

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
        return encode(history(self.entries(), history_from(data), self.session.step_count))

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


Performed = Callable[[ServedSession, dict[str, Any], Asked | None], bytes]

PERFORMED: dict[str, Performed] = {
    "reset": ServedSession.reset,
    "step": ServedSession.step,
    "state": lambda session, data, _: session.state(data),
    "snapshot": lambda session, data, _: session.snapshot(data),
    "fork": lambda session, data, _: session.fork(data),
    "restore": lambda session, data, _: session.restore(data),
    "history": lambda session, data, _: session.history(data),
}
BRANCHED = ("snapshot", "fork", "restore")  # what a replay of the episode does not do again
QUICK = ("reset", "step", "state")  # the others take the longer, the longer the episode of a host environment


def unknown_type(kind: str) -> ServerError:
    return ServerError("UNKNOWN_TYPE", f"unknown type {shorten(kind)}; expected one of {', '.join(PERFORMED)}, close")
