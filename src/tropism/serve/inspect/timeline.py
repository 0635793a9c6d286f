"""An episode to look at: replayed from its seed, options and actions, at any of its steps."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import accumulate, count
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np

from tropism.core.session.session import Session
from tropism.errors import DivergedError, StateError, TropismError, ValidationError
from tropism.serve.inspect.images import draw
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.protocol import Entry
from tropism.wire.codec import encode

MOST_MARKS = 32  # moments of an episode that are kept, evenly over it, to replay others from
LONGEST = 20_000  # entries; what comes after those is not shown
LARGEST = 2**26  # bytes of its rows; likewise
MOST_NUMBERS = 16  # of one observation that are told; a picture is no sensor trace
WHOLE = "observation"
LONGEST_TEXT = 16_384  # characters

LASTING = (DivergedError, StateError, ValidationError)  # what a replay raises each time

takes = count(secrets.randbits(32))  # a page that outlives this process must not take a later reel for an earlier one


class Row(msgspec.Struct):
    """One moment of an episode, as it is shown: the action that led to it, and what was seen then."""

    step: int
    action: dict[str, Any] | None
    reward: float
    total_reward: float
    lifecycle: str
    text: str
    numbers: dict[str, float]
    spot: tuple[float, float] | None
    legal: list[bool] | None


class Mark(NamedTuple):
    """After how many entries, and how to stand there again."""

    length: int
    again: Callable[[], Session]


@runtime_checkable
class Source(Protocol):
    """Where an episode comes from: a live session, or a recording."""

    environment: ServedEnvironment

    def entries(self) -> list[Entry]:
        """What it is made of so far, the reset first; in a thread, because this may have to be read."""
        ...

    def episode(self) -> int:
        """Which one it is: another number once there are entries of another."""
        ...

    def check(self, session: Session) -> None:
        """Refuse a session that was replayed up to here, and has not seen what was seen then."""
        ...

    def standing(self) -> tuple[str, int]:
        """Lifecycle, and steps taken."""
        ...


class Reel:
    """The moments of one episode, as far as they were replayed. Used by one thread at a time."""

    def __init__(self, source: Source):
        self.source = source
        self.environment = environment = source.environment
        self.take = next(takes)  # tells a reel from the one that had been shown before
        self.episode: int | None = None
        self.entries: list[Entry] = []
        self.rows: list[msgspec.Raw] = []  # each a Row, as it is told
        self.size = 0  # bytes of all rows
        self._front = environment.fresh()
        self._marks: list[Mark] = []
        self._stride = 1
        self._failed: Callable[[], Exception] | None = None
        self._broken = False

    def begins(self, entries: list[Entry]) -> bool:
        """Whether this episode is the one of this reel, as far as that goes, and the reel can go on."""
        return not self._broken and entries[: len(self.entries)] == self.entries

    def extend(self, entries: list[Entry]) -> None:
        """Replay what has been done since."""
        if self._failed is not None:
            raise self._failed()
        for entry in entries[len(self.entries) :]:
            if self.full:
                return
            try:
                self._front = play(self.environment, self._front, entry)
                self.source.check(self._front)
            except LASTING as error:
                self._failed = _again(error)
                raise
            except BaseException:
                self._broken = True  # nobody knows where it stands; what went wrong may not go wrong twice
                raise
            self.entries.append(entry)
            if entry.kind != "reseed":
                self.rows.append(msgspec.Raw(encode(_row(self._front, entry))))
                self.size += len(self.rows[-1])
                self._mark()

    @property
    def full(self) -> bool:
        """Whether no more of this episode is shown."""
        return len(self.entries) >= LONGEST or self.size >= LARGEST

    def told(self, start: int, most: int, largest: int) -> list[msgspec.Raw]:
        """Rows from this one on: at most that many, and that many bytes unless the first has more."""
        rows = self.rows[start : start + most]
        sizes = accumulate(len(row) for row in rows)
        return rows[: max(1, sum(size <= largest for size in sizes))]

    def _mark(self) -> None:
        """Keep this moment where it costs nothing; when there are too many, every second one is let go."""
        if not self.environment.env.traced or self._front.step_count % self._stride:
            return
        self._marks.append(Mark(len(self.entries), self._front.restore_point()))
        if len(self._marks) > MOST_MARKS:
            self._marks, self._stride = self._marks[::2], 2 * self._stride

    def picture(self, step: int, of: str | None) -> bytes | None:
        """The picture after this step, or the image in the field `of` of its observation; None where there is none."""
        at_front = not self._broken and step == self._front.step_count
        return draw(self._front, of) if at_front else drawn(self.at(step), of)

    def at(self, step: int) -> Session:
        """A session of its own that stands there, replayed from the nearest moment that was kept."""
        entries = until(self.entries, step)
        reached = [mark for mark in self._marks if mark.length <= len(entries)]
        start, session = (reached[-1].length, reached[-1].again()) if reached else (0, self.environment.fresh())
        return replayed(self.environment, entries[start:], session)

    def close(self) -> None:
        """Let go of its sessions; what was asked of it before may still be answered."""
        self._broken = True
        self._front.close()
        self._marks.clear()


def _again(error: TropismError) -> Callable[[], Exception]:
    """The same error each time, without what was under way when it was first raised."""
    kind, name, expected, message = type(error), error.name, error.expected, error.message
    return lambda: kind(name, None, expected, message)


def until(entries: list[Entry], step: int) -> list[Entry]:
    """The entries that led to the moment after this many steps."""
    lengths = [place + 1 for place, entry in enumerate(entries) if entry.kind != "reseed"]
    if not 0 <= step < len(lengths):
        raise ValidationError("step", step, f"a step of this episode: 0 to {len(lengths) - 1}")
    return entries[: lengths[step]]


def replayed(environment: ServedEnvironment, entries: list[Entry], session: Session) -> Session:
    """This session, or its fork, after it has lived through these entries too."""
    try:
        for entry in entries:
            session = play(environment, session, entry)
    except BaseException:
        session.close()
        raise
    return session


def play(environment: ServedEnvironment, session: Session, entry: Entry) -> Session:
    """The session after one more entry of its episode."""
    if not environment.replayable:
        message = f"an episode of {environment.id} cannot be replayed, so its past cannot be shown"
        raise StateError("replayable", False, "a replayable environment", message)
    if entry.kind == "reset":
        session.reset(**{name: entry.payload[name] for name in ("seed", "options", "episode_id")})
        return session
    if entry.kind == "reseed":
        with session:
            return session.fork(entry.payload["seed"])
    words = environment.form.words(entry.payload)
    action = environment.form.action(entry.payload) if words is None else session.parse(words)
    reward = session.step(action).reward
    if entry.reward is not None and reward != entry.reward and reward == reward:
        message = f"replayed, step {session.step_count} has the reward {reward}, not {entry.reward}"
        raise DivergedError("replay", reward, f"the reward {entry.reward}", message)
    return session


def _row(session: Session, entry: Entry) -> Row:
    obs, reward, _, _, info = session.timestep
    legal = info.get("legal_actions")
    return Row(
        session.step_count,
        entry.payload if entry.kind == "step" else None,
        reward,
        session.total_reward,
        session.lifecycle.value,
        session.describe()[:LONGEST_TEXT],
        named_numbers(obs, session.env.observation_words()),
        session.agent_position_in_image(),
        None if legal is None else np.asarray(legal, bool).tolist(),
    )


def named_numbers(obs: Any, words: tuple[str, ...]) -> dict[str, float]:
    if words and np.shape(obs) == (len(words),) == (len({*words}),):
        return dict(zip(words, np.asarray(obs, float).tolist(), strict=True))
    return dict(_numbers(obs, WHOLE))


def _numbers(value: Any, name: str) -> Iterator[tuple[str, float]]:
    """The numbers of an observation that has few, each with a name; `name` is that of the whole, or of the part."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _numbers(part, _within(name, str(key)))
    elif is_dataclass(value):
        for field in fields(value):
            if field.name not in ("reward", "done", "metadata"):
                yield from _numbers(getattr(value, field.name), _within(name, field.name))
    elif isinstance(value, np.ndarray | np.generic | int | float) and not isinstance(value, bool):
        array = np.asarray(value)
        if array.size == 1:
            yield name, float(array.item())
        elif array.size <= MOST_NUMBERS:
            yield from ((f"{name}[{place}]", float(number)) for place, number in enumerate(array.ravel()))


def _within(name: str, part: str) -> str:
    return part if name == WHOLE else f"{name}.{part}"


def drawn(session: Session, of: str | None) -> bytes | None:
    """As `draw`; then close the session."""
    with session:
        return draw(session, of)
