"""Operations on the journal of a stopped server: reports, checks, rescue, deletion and export."""

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tropism.errors import DivergedError, ServerError, ValidationError
from tropism.serve.storage.contents import StoredContents, read_session
from tropism.serve.storage.eraser import erase_discarded
from tropism.serve.storage.protocol import session_key
from tropism.serve.storage.rows import decode_row
from tropism.serve.storage.sqlite import LOG_SIZE
from tropism.serve.storage.sqlite_file import INSERT_EPISODE, SqliteFile
from tropism.serve.storage.statements import (
    INSERT_NOTE,
    INSERT_SESSION,
    MARK_DOUBTFUL,
    SELECT_NUMBER,
    WriteGroup,
    close_statements,
)
from tropism.wire.codec import encode

SESSION_COLUMNS = "key, environment, variant, owner, used, begin, reached, snapshot"
NOTE_COLUMNS = "session, kind, begin, seq, cast(entry as text)"


class SessionSummary(NamedTuple):
    """A stored session; `problem` says why it cannot be resumed."""

    key: str
    environment: str
    steps: int
    unused_seconds: float
    is_doubtful: bool
    problem: str | None = None


@contextmanager
def open_journal(path: Path) -> Generator[SqliteFile]:
    """The file of a journal that no server has open."""
    if path.parts[:1] in (("postgresql:",), ("postgres:",)):
        expected = "a file; a journal in Postgres is inspected with SQL, in the schema tropism"
        raise ValidationError("journal", str(path).split("@")[-1], expected)
    if not path.is_file():
        raise ValidationError("journal", str(path), "an existing journal file")
    file = SqliteFile(path, LOG_SIZE)
    try:
        yield file
    finally:
        file.close()


def summaries(file: SqliteFile) -> list[SessionSummary]:
    """All sessions, most recently used first."""
    rows, _ = _scan(file, "key, environment, used", "sessions")
    return [_summary(file, *row[1:]) for row in sorted(rows, key=lambda row: -row[3])]


def _summary(file: SqliteFile, key: bytes, environment: str, used: float) -> SessionSummary:
    unused = file.running_time() - used
    try:
        stored = read_session(file, key)
    except (DivergedError, ServerError) as error:
        return SessionSummary(key.hex(), environment, 0, unused, False, str(error))
    return SessionSummary(key.hex(), environment, _steps(stored), unused, stored.is_doubtful)


def _steps(stored: StoredContents) -> int:
    """Entries since the reset; one more than the steps of an episode that was not forked with another seed."""
    return stored.end - stored.begin - 1


def problems(file: SqliteFile) -> list[str]:
    """What is damaged: in the file itself, in the write-ahead log, and in single sessions."""
    found = [f"{file.discarded_commits} commits of the logs are damaged"] if file.discarded_commits else []
    try:
        found += [f"the file: {text}" for (text,) in file.query("pragma integrity_check") if text != "ok"]
        rows = file.logged_rows()
    except ServerError as error:
        return [*found, f"the file: {error.message}"]
    damaged = {number for row in rows for number in decode_row(row)[1]}
    found += [f"the log: an entry of session number {number or 'unknown'}" for number in damaged]
    return found + [f"session {each.key}: {each.problem}" for each in summaries(file) if each.problem]


def salvage(path: Path, target: Path) -> tuple[int, int]:
    """Copy all sessions that can be resumed to another journal; returns their number and that of the others."""
    if target.exists():
        raise ValidationError("target", str(target), "a path without a file")
    with open_journal(path) as damaged, closing(SqliteFile(target, LOG_SIZE)) as rescued:
        sessions, certain = _scan(damaged, SESSION_COLUMNS, "sessions")
        logged, log_certain = _scan(damaged, "cast(entries as blob)", "log")
        lines = [decode_row(row) for row in (*(row for _, row in logged), *damaged.pending_rows())]
        doubtful = {number for _, numbers in lines for number in numbers}
        kept = 0
        for session in sessions:
            number, key = session[0], session[1]
            own = [line for row, _ in lines for line in row if line[0] == number]
            group = _copy_statements(damaged, session, own)
            if not log_certain or not certain or doubtful & {number, None} or damaged.discarded_commits:
                group.statements.append((MARK_DOUBTFUL, (number,)))
            rescued.write(group)
            try:
                read_session(rescued, key)
                kept += 1
            except DivergedError:
                rescued.write(WriteGroup(close_statements(number)))
        erase_discarded(rescued)
    return kept, len(sessions) - kept


def _copy_statements(file: SqliteFile, session: tuple[Any, ...], lines: list[Any]) -> WriteGroup:
    number, group = session[0], WriteGroup([(INSERT_SESSION, session)])
    pieces, _ = _scan(file, "session, first, last, cast(entries as text)", "episodes", number)
    group.statements += [(INSERT_EPISODE, piece[1:]) for piece in pieces]
    if lines:
        group.statements.append((INSERT_EPISODE, (number, lines[0][1], lines[-1][1], encode(lines).decode())))
    notes, _ = _scan(file, NOTE_COLUMNS, "notes", number)
    group.statements += [(INSERT_NOTE, note[1:]) for note in notes]
    return group


def _scan(file: SqliteFile, columns: str, table: str, session: int | None = None) -> tuple[list[Any], bool]:
    """The rows of a table with their row ids, from both ends up to a damaged page; and whether those are all rows."""
    where = "" if session is None else f"where session = {int(session)}"
    rows: dict[int, Any] = {}
    for order in ("asc", "desc"):
        try:
            for row in file.iterate(f"select rowid, {columns} from {table} {where} order by rowid {order}"):
                rows[row[0]] = row
            return [rows[id] for id in sorted(rows)], True
        except sqlite3.Error:
            continue
    return [rows[id] for id in sorted(rows)], False


def forget(file: SqliteFile, name: str) -> None:
    """Delete a session, and erase it from the file at once."""
    ((number,),) = file.query(SELECT_NUMBER, find_key(file, name))
    file.write(WriteGroup(close_statements(number)))
    erase_discarded(file)


def export(file: SqliteFile, name: str) -> Iterator[bytes]:
    """The session and its entries as JSON, one per line."""
    key = find_key(file, name)
    stored = read_session(file, key)
    record = stored.record._asdict() | {"session": key.hex(), "is_doubtful": stored.is_doubtful}
    yield encode(record)
    for entry in (*stored.point.before, *stored.point.after):
        yield encode({"kind": entry.kind, "payload": entry.payload, "reward": entry.reward, "done": entry.done})


def find_key(file: SqliteFile, name: str) -> bytes:
    """The key of the session with this id, or with a key in hex that begins like this."""
    keys = [key for (key,) in file.query("select key from sessions")]
    found = [key for key in keys if key == session_key(name) or key.hex().startswith(name)]
    if len(found) != 1:
        raise ValidationError("session", name, f"the id or key of one session of this journal; it matches {len(found)}")
    return found[0]
