"""The entries that a stored session is recovered from, in order."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from tropism.serve.storage.protocol import Entry
from tropism.serve.storage.rows import damaged_error

decode_entry = msgspec.json.Decoder(Entry).decode


class Note(NamedTuple):
    """A note, the seq of the reset of its episode, and the seq of the first entry after it."""

    begin: int
    seq: int
    entry: Entry


def needed_spans(notes: Iterable[Note], begin: int, end: int) -> dict[int, int]:
    """The first and last seqs, exclusive, of the entries to load: those that led to snapshots, and the episode's."""
    return {note.begin: note.seq for note in notes if note.entry.kind == "snapshot"} | {begin: end}


def order_entries(
    lines: Iterable[tuple[int, Entry]], notes: Sequence[Note], begin: int, reached: int, max_entries: int
) -> tuple[list[Entry], list[Entry]]:
    """The entries before and after the snapshot at `reached`, with notes in their places; `lines` are (seq, entry)."""
    placed = [(seq, 1, entry) for seq, entry in lines]
    _check_complete(sorted(seq for seq, _, _ in placed if seq >= begin), begin, reached, max_entries)
    placed += [(note.seq, 0, note.entry) for note in notes]  # a note precedes the entry with its seq
    placed.sort(key=lambda each: each[:2])
    before = [entry for seq, is_line, entry in placed if seq < reached or (seq == reached and not is_line)]
    return before, [entry for _, _, entry in placed[len(before) :]]


def _check_complete(seqs: list[int], begin: int, reached: int, max_entries: int) -> None:
    """Raise an error if entries of the episode are missing, except those deleted before the last snapshot."""
    for previous, seq in pairwise([begin - 1, *seqs]):
        if seq != previous + 1 and not begin + max_entries - 1 <= previous < seq <= reached:
            raise damaged_error()
