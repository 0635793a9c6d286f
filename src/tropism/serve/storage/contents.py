"""Reads a session from the SQLite file."""

from typing import NamedTuple

from tropism.serve.storage.protocol import MAX_ENTRIES, RecoveryPoint, SessionRecord
from tropism.serve.storage.recovery import needed_spans, order_entries
from tropism.serve.storage.rows import damaged_error
from tropism.serve.storage.sqlite_file import SqliteFile
from tropism.serve.storage.statements import ALL_SEQS, SELECT_SESSION


class StoredContents(NamedTuple):
    """A stored session: where it is in the file, and the point to resume from."""

    number: int
    begin: int
    end: int
    is_doubtful: bool
    record: SessionRecord
    point: RecoveryPoint


def read_session(file: SqliteFile, key: bytes, max_entries: int = MAX_ENTRIES) -> StoredContents:
    """The session with this key, which exists; raises `DivergedError` if entries that a replay needs are missing."""
    rows = file.query(SELECT_SESSION, key)
    if not rows:
        raise damaged_error()
    number, begin, reached, snapshot, is_doubtful, *record = rows[0]
    notes = file.notes(number)
    spans = needed_spans(notes, begin, ALL_SEQS)
    lines = [(seq, entry) for span in spans.items() for _, seq, entry in file.lines(number, *span)]
    end = max((seq + 1 for seq, _ in lines), default=begin)
    before, after = order_entries(lines, notes, begin, reached, max_entries)
    if end <= begin or (snapshot is None and after[0].kind != "reset"):
        raise damaged_error()
    point = RecoveryPoint(snapshot, before, after)
    return StoredContents(number, begin, end, bool(is_doubtful), SessionRecord(*record), point)
