"""Reads a stored session, and checks that it is complete."""

from itertools import pairwise
from typing import NamedTuple

from tropism.serve.storage.protocol import MAX_ENTRIES, Entry, RecoveryPoint, SessionRecord
from tropism.serve.storage.rows import damaged_error
from tropism.serve.storage.sqlite_file import SqliteFile
from tropism.serve.storage.statements import SELECT_SESSION

END = 2**62  # above every seq


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
    ((number, begin, reached, snapshot, is_doubtful, *record),) = file.query(SELECT_SESSION, key)
    notes = file.notes(number)
    needed = {note.begin: note.seq for note in notes if note.entry.kind == "snapshot"} | {begin: END}
    placed = [(seq, 1, entry) for span in needed.items() for _, seq, entry in file.lines(number, *span)]
    seqs = sorted(seq for seq, _, _ in placed if seq >= begin)
    end = seqs[-1] + 1 if seqs else begin
    if not _is_complete(seqs, begin, reached, max_entries):
        raise damaged_error()
    placed += [(note.seq, 0, note.entry) for note in notes]  # a note precedes the entry with its seq
    placed.sort(key=lambda each: each[:2])
    before = [entry for seq, is_line, entry in placed if seq < reached or (seq == reached and not is_line)]
    after: list[Entry] = [entry for _, _, entry in placed[len(before) :]]
    if snapshot is None and after[0].kind != "reset":
        raise damaged_error()
    point = RecoveryPoint(snapshot, before, after)
    return StoredContents(number, begin, end, bool(is_doubtful), SessionRecord(*record), point)


def _is_complete(seqs: list[int], begin: int, reached: int, max_entries: int) -> bool:
    """Whether no entry of the episode is missing, except those deleted before the last snapshot."""
    gaps = [(previous, seq) for previous, seq in pairwise([begin - 1, *seqs]) if seq != previous + 1]
    return bool(seqs) and all(begin + max_entries - 1 <= previous < seq <= reached for previous, seq in gaps)
