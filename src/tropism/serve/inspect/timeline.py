"""The timeline of an episode: its rows and pictures, replayed from its seed, options and actions."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import accumulate, count, takewhile
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tropism.core.session.replay import TIMESTEPS
from tropism.core.session.session import Session
from tropism.errors import DivergedError, StateError, TropismError, ValidationError
from tropism.serve.inspect.images import draw
from tropism.serve.session.replay import Source, entries_to_step, replay_entries, replay_to_end
from tropism.serve.storage.protocol import Entry
from tropism.wire.codec import encode

MAX_MARKS = 32  # evenly spaced restore points of an episode, to replay other steps from
MAX_SHOWN_ENTRIES = 20_000  # later ones are not shown
MAX_SHOWN_BYTES = 2**26  # of rows; later ones are not shown
MAX_NUMBERS = 16  # of one array; larger ones, such as images, are not sensor readings
WHOLE_OBSERVATION = "observation"
LONGEST_TEXT = 16_384  # characters

PERMANENT_ERRORS = (DivergedError, StateError, ValidationError)  # raised by every attempt to replay

# Random start: a page that stays open across a restart must not confuse a new timeline with an old one.
versions = count(secrets.randbits(32))


class TimelineRow(msgspec.Struct):
    """One step of an episode: its action, and the state after it."""

    step: int
    action: dict[str, Any] | None
    reward: float
    total_reward: float
    lifecycle: str
    text: str
    numbers: dict[str, float]
    spot: tuple[float, float] | None
    legal: list[bool] | None


class TimelineMark(NamedTuple):
    """A function that restores the session after `length` entries."""

    length: int
    restore: Callable[[], Session]


class Timeline:
    """The rows of one episode, as far as it has been replayed. Not thread-safe."""

    def __init__(self, source: Source):
        self.source = source
        self.environment = environment = source.environment
        self.version = next(versions)  # differs for each timeline
        self.episode_number: int | None = None
        self.entries: list[Entry] = []
        self.rows: list[msgspec.Raw] = []  # each an encoded TimelineRow
        self.size = 0  # bytes of all rows
        self._head = environment.new_session()
        self._marks: list[TimelineMark] = []
        self._stride = 1
        self._failure: Callable[[], Exception] | None = None
        self._broken = False

    def matches(self, entries: list[Entry]) -> bool:
        """Whether `entries` continue this timeline, and it can be extended."""
        return not self._broken and entries[: len(self.entries)] == self.entries

    def extend(self, entries: list[Entry]) -> None:
        """Replay the entries that are new."""
        if self._failure is not None:
            raise self._failure()
        new = takewhile(lambda _: not self.full, entries[len(self.entries) :])
        try:
            for entry in replay_entries(self.environment, self._head, new, self.source.compare):
                self.entries.append(entry)
                if entry.kind in TIMESTEPS:
                    self.rows.append(msgspec.Raw(encode(_row(self._head, entry))))
                    self.size += len(self.rows[-1])
                    self._mark()
        except PERMANENT_ERRORS as error:
            self._failure = _error_copier(error)
            raise
        except BaseException:
            self._broken = True  # the session's state is unknown; a new timeline may succeed
            raise

    @property
    def full(self) -> bool:
        """Whether no further entries are shown."""
        return len(self.entries) >= MAX_SHOWN_ENTRIES or self.size >= MAX_SHOWN_BYTES

    def page(self, start: int, max_rows: int, max_bytes: int) -> list[msgspec.Raw]:
        """At most `max_rows` rows from `start`, and at most `max_bytes` unless the first one is larger."""
        rows = self.rows[start : start + max_rows]
        sizes = accumulate(len(row) for row in rows)
        return rows[: max(1, sum(size <= max_bytes for size in sizes))]

    def _mark(self) -> None:
        """Keep a restore point, for pure environments; when there are too many, drop every second one."""
        if not self.environment.env.pure or self._head.step_count % self._stride:
            return
        self._marks.append(TimelineMark(len(self.entries), self._head.restore_point()))
        if len(self._marks) > MAX_MARKS:
            self._marks, self._stride = self._marks[::2], 2 * self._stride

    def picture(self, step: int, field: str | None) -> bytes | None:
        """The picture after this step, or the image in this field of its observation; None if there is none."""
        at_head = not self._broken and step == self._head.step_count
        return draw(self._head, field) if at_head else draw_and_close(self.session_at(step), field)

    def session_at(self, step: int) -> Session:
        """A new session at this step, replayed from the nearest restore point."""
        entries = entries_to_step(self.entries, step)
        passed = [mark for mark in self._marks if mark.length <= len(entries)]
        start, session = (passed[-1].length, passed[-1].restore()) if passed else (0, self.environment.new_session())
        replay_to_end(self.environment, session, entries[start:], self.source.compare)
        return session

    def close(self) -> None:
        """Close its session; rows remain readable for requests in progress."""
        self._broken = True
        self._head.close()
        self._marks.clear()


def _error_copier(error: TropismError) -> Callable[[], Exception]:
    """Makes copies of an error without its traceback and value."""
    kind, name, expected, message = type(error), error.name, error.expected, error.message
    return lambda: kind(name, None, expected, message)


def _row(session: Session, entry: Entry) -> TimelineRow:
    obs, reward, _, _, info = session.timestep
    legal = info.get("legal_actions")
    return TimelineRow(
        session.step_count,
        entry.payload if entry.kind == "step" else None,
        reward,
        session.total_reward,
        session.lifecycle.value,
        session.describe()[:LONGEST_TEXT],
        named_numbers(obs, session.env.language.observations),
        session.agent_position_in_image(),
        None if legal is None else np.asarray(legal, bool).tolist(),
    )


def named_numbers(obs: Any, names: tuple[str, ...]) -> dict[str, float]:
    """The numbers of a small observation by name; `names`, if unique and of the right length, are those of a vector."""
    if names and np.shape(obs) == (len(names),) == (len({*names}),):
        return dict(zip(names, np.asarray(obs, float).tolist(), strict=True))
    return dict(_numbers(obs, WHOLE_OBSERVATION))


def _numbers(value: Any, name: str) -> Iterator[tuple[str, float]]:
    """The numbers of a small observation, each with a name that begins with `name`."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _numbers(part, _join_name(name, str(key)))
    elif is_dataclass(value):
        for field in fields(value):
            if field.name not in ("reward", "done", "metadata"):
                yield from _numbers(getattr(value, field.name), _join_name(name, field.name))
    elif isinstance(value, np.ndarray | np.generic | int | float) and not isinstance(value, bool):
        array = np.asarray(value)
        if array.size == 1:
            yield name, float(array.item())
        elif array.size <= MAX_NUMBERS:
            yield from ((f"{name}[{index}]", float(number)) for index, number in enumerate(array.ravel()))


def _join_name(name: str, part: str) -> str:
    return part if name == WHOLE_OBSERVATION else f"{name}.{part}"


def draw_and_close(session: Session, field: str | None) -> bytes | None:
    """Draw the session, then close it."""
    with session:
        return draw(session, field)
