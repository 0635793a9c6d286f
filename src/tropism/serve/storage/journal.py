"""The journal: what was acknowledged, in a file that outlives the server."""

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Literal

from tropism.errors import ServerError
from tropism.serve.storage.memory import MemoryStore
from tropism.serve.storage.protocol import MOST_ENTRIES, Entry, Kept, Lost, Owned, Saved, Then
from tropism.serve.storage.sqlite import USED, NotWrittenError, Statement, Tables, unusable

Durability = Literal["process", "power"]

log = logging.getLogger("tropism.serve")

KEY = 16  # bytes
FORGET_AFTER = 30 * 86_400.0  # seconds
TIDYING = 3600.0  # seconds between two looks for sessions that nobody comes back to

NEW = "insert into sessions values (?, ?, ?, ?, ?, ?, 0, 0, null)"
ANEW = "update sessions set begin = ?, reached = ?, snapshot = null, used = ? where number = ?"
REACHED = "update sessions set reached = ?, snapshot = ?, used = ? where number = ?"
CLEAR = """
delete from episodes where session = ? and last < ? and not exists (
  select 1 from snapshots where snapshots.session = episodes.session and begin <= last and first < begin + length
)
"""
REPLY = "insert or replace into replies values (?, ?, ?)"
SNAPSHOT = "insert into snapshots values (?, ?, ?, ?, ?)"
KEPT = "select id, begin, length, snapshot from snapshots where session = ? order by length desc"
STOOD = """
select number, begin, reached, snapshot, (select max(last) from episodes where session = number)
from sessions where key = ?
"""
BETWEEN = "delete from episodes where session = ? and first >= ? and last < ?"
OWN = (("episodes", "session"), ("snapshots", "session"), ("replies", "session"), ("sessions", "number"))


class Place:
    """Where a session is in the file: `begin` is the seq of its episode's reset, `end` that of its next entry."""

    __slots__ = ("begin", "end", "number")

    def __init__(self, number: int, begin: int, end: int):
        self.number = number
        self.begin = begin
        self.end = end


def default_path(host: str, port: int) -> Path:
    """Where the server of this address keeps its sessions, if nobody says otherwise."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "tropism" / f"{host.replace(':', '_')}-{port}.journal"


class Journal:
    """A store in one file, which one server has open at a time.

    What all sessions did in one turn of the event loop is written together, and then answered. A live session is
    remembered in memory as well: the file is read only when one is taken up again.
    """

    def __init__(self, path: str | Path, durability: Durability = "process", forget_after: float = FORGET_AFTER):
        """`forget_after` is for how many seconds a session is kept that nobody comes back to."""
        self.path = Path(path)
        self.lost: Lost = lambda _: None
        self._power = durability == "power"
        self._forget_after = forget_after
        self._memory = MemoryStore()
        self._places: dict[str, Place] = {}
        self._waiting: list[Then] = []  # for the next commit
        self._committed: list[Then] = []  # who wait for the disk
        self._unsynced = False
        self._turn: asyncio.Handle | None = None
        self._syncing: asyncio.Task[None] | None = None
        self._tables = Tables(self.path)
        self._to_disk = self._tables.to_disk
        try:
            self._tables.sort()
            self._tidy()
            ((last,),) = self._tables.ask("select ifnull(max(number), 0) from sessions")
            self._numbers = count(last + 1)
        except ServerError as error:
            self._tables.close()
            raise unusable(self.path, f"one that is whole ({error.message})") from None

    def open(self, session: str, owned: Owned) -> None:
        self._memory.open(session, owned)

    def append(
        self, session: str, entries: Sequence[Entry], snapshot: bytes | None = None, parent: str | None = None, /
    ) -> None:
        with self._tables.lock:
            if entries[0].kind == "reset":
                place, statements = self._begun(session)
            else:
                place, statements = self._place(session), []
            lines = [(place.number, seq, entry) for seq, entry in enumerate(entries, place.end)]
            place.end += len(lines)
            if snapshot is not None:
                statements += _reached(place, snapshot)
            self._tables.put((session,) if parent is None else (session, parent), statements, lines)
            self._memory.append(session, entries)

    def _place(self, session: str) -> Place:
        if session not in self._places:
            raise _is_lost()
        return self._places[session]

    def _begun(self, session: str) -> tuple[Place, list[Statement]]:
        """A place for another episode; what was kept of the one before goes, but for what led to snapshots."""
        old = self._places.get(session)
        if old is not None:
            place = Place(old.number, old.end, old.end)
            statements: list[Statement] = [
                (CLEAR, (place.number, place.begin)),
                ("delete from replies where session = ?", (place.number,)),
                (ANEW, (place.begin, place.begin, time.time(), place.number)),
            ]
        else:
            owned = self._memory.whose(session)
            if owned is None:
                raise _is_lost()
            place = Place(next(self._numbers), 0, 0)
            statements = [(NEW, (place.number, _key(session), *owned, time.time()))]
        self._places[session] = place
        return place, statements

    def episode(self, session: str) -> list[Entry]:
        return self._memory.episode(session)

    def remember(self, session: str, request_id: str, reply: bytes) -> None:
        self._memory.remember(session, request_id, reply)

    def keep_reply(self, session: str, request_id: str, reply: bytes) -> None:
        if (place := self._places.get(session)) is not None:  # None before the first reset
            self._tables.put((session,), [(REPLY, (place.number, request_id, reply))])
        self.remember(session, request_id, reply)

    def reply(self, session: str, request_id: str) -> bytes | None:
        return self._memory.reply(session, request_id)

    def answered(self, session: str, request_id: str) -> bool:
        return self._memory.answered(session, request_id)

    def keep(self, session: str, snapshot_id: str, snapshot: bytes) -> None:
        place = self._place(session)
        length = min(place.end - place.begin, MOST_ENTRIES)
        self._tables.put((session,), [(SNAPSHOT, (place.number, snapshot_id, place.begin, length, snapshot))])
        self._memory.keep(session, snapshot_id, snapshot)

    def snapshots(self, session: str) -> dict[str, Kept]:
        return self._memory.snapshots(session)

    def save(self, session: str, snapshot: bytes) -> None:
        self._tables.put((session,), _reached(self._place(session), snapshot))
        self._commit()
        self.release(session)
        if time.time() > self._tidied + TIDYING:
            self._tidy()

    def whose(self, session: str) -> Owned | None:
        self._commit()
        rows = self._tables.ask("select environment, variant, owner from sessions where key = ?", _key(session))
        return Owned(*rows[0]) if rows else None

    def load(self, session: str) -> Saved | None:
        self._tables.sort()
        stood = self._tables.ask(STOOD, _key(session))
        if not stood:
            return None
        ((number, begin, reached, snapshot, last),) = stood
        if last is None:
            raise ServerError(
                "JOURNAL_ERROR", "the journal is damaged: it has this session, and nothing of its episode"
            )
        place, lines = Place(number, begin, last + 1), self._tables.lines(number, begin, last + 1)
        before = [entry for _, seq, entry in lines if seq < reached]
        self._memory.append(session, [entry for _, _, entry in lines])
        self._recall(session, place, before)
        self._tables.put((), [(USED, (time.time(), number))])
        return Saved(snapshot, [entry for _, seq, entry in lines if seq >= reached], before[-1:])

    def _recall(self, session: str, place: Place, before: list[Entry]) -> None:
        """Have at hand what a live session remembers; replies that a replay gives again come from there."""
        number, memory, ask = place.number, self._memory, self._tables.ask
        for entry in before:
            if entry.asked is not None:
                memory.note(session, entry.asked.request_id)
        for request_id, reply in ask("select request_id, reply from replies where session = ?", number):
            memory.remember(session, request_id, reply)
        episodes = {place.begin: memory.episode(session)}
        for id, begin, length, snapshot in ask(KEPT, number):  # the longest come first
            if begin not in episodes:
                episodes[begin] = [entry for _, _, entry in self._tables.lines(number, begin, begin + length)]
            memory.put_back(session, id, Kept(snapshot, episodes[begin], length))
        self._places[session] = place

    def release(self, session: str) -> None:
        with self._tables.lock:
            self._places.pop(session, None)
            self._memory.forget(session)

    def forget(self, session: str) -> None:
        with self._tables.lock:
            place = self._places.get(session)
            known = self._tables.ask("select number from sessions where key = ?", _key(session))
            for (number,) in known if place is None else [(place.number,)]:
                self._tables.put((session,), _deleted(number))
            self.release(session)

    def _tidy(self) -> None:
        """Forget the sessions that nobody came back to in time."""
        self._tidied = time.time()
        live = {place.number for place in self._places.values()}
        for (number,) in self._tables.ask(
            "select number from sessions where used < ?", self._tidied - self._forget_after
        ):
            if number not in live:
                self._tables.put((), _deleted(number))
        self._commit()

    def settle(self, then: Then) -> None:
        if self._turn is None:
            if not self._tables.changed and not self._unsynced and self._syncing is None:
                then(None)
                return
            self._turn = asyncio.get_running_loop().call_soon(self._end_turn)
        self._waiting.append(then)

    def _end_turn(self) -> None:
        """Write what was done in this turn, and let those know who wait for it."""
        self._turn = None
        try:
            self._commit()
        except ServerError:  # which they know by now
            return
        waiting, self._waiting = self._waiting, []
        if not self._power:
            _let_know(waiting, None)
            return
        self._committed += waiting
        if self._syncing is None:
            self._syncing = asyncio.ensure_future(self._sync())

    def _commit(self) -> None:
        """Write what was done; sessions of which that fails are lost, as if this process had died."""
        try:
            with self._tables.lock:
                self._unsynced |= self._power and self._tables.changed
                self._write()
        except NotWrittenError as failed:
            waiting, self._waiting = self._waiting, []
            for session in failed.sessions:
                self.lost(session)
            _let_know(waiting, failed.reason)
            raise failed.reason from failed

    def _write(self) -> None:
        try:
            self._tables.commit()
        except NotWrittenError as failed:
            for session in failed.sessions:
                self.release(session)  # before anybody can append to what is not there
            raise

    async def _sync(self) -> None:
        """Wait for the disk as long as somebody waits; who comes meanwhile shares its next turn with the others."""
        try:
            while self._committed:
                waiting, self._committed = self._committed, []
                self._unsynced, error = False, None
                try:
                    await asyncio.to_thread(self._to_disk)
                    self._to_disk = self._tables.to_disk
                except (OSError, ServerError) as failed:
                    self._unsynced, self._to_disk = True, self._tables.fold
                    words = f"done, but perhaps not on the disk ({failed}); repeat it under its request_id"
                    error = ServerError("JOURNAL_ERROR", words)
                _let_know(waiting, error)
        finally:
            self._syncing = None

    def close(self) -> None:
        try:
            self._commit()
        except ServerError as error:
            log.error("the last that was done, and not answered: %s", error.message)
        self._tables.close()


def _reached(place: Place, snapshot: bytes) -> list[Statement]:
    """From here on is to be replayed; what neither that nor a history needs goes."""
    statements: list[Statement] = [(REACHED, (place.end, snapshot, time.time(), place.number))]
    if place.end > (told := place.begin + MOST_ENTRIES):
        statements.append((BETWEEN, (place.number, told, place.end - 1)))
    return statements


def _deleted(number: int) -> list[Statement]:
    return [(f"delete from {table} where {column} = ?", (number,)) for table, column in OWN]


def _is_lost() -> ServerError:
    return ServerError("JOURNAL_ERROR", "not done: what this session did before could not be written")


def _let_know(waiting: list[Then], error: ServerError | None) -> None:
    for then in waiting:
        then(error)


def _key(session: str) -> bytes:
    """Of a session only a digest of its id is written down, since whoever knows the id may step it."""
    return blake2b(session.encode(), digest_size=KEY).digest()
