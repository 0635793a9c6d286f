"""Decodes rows of entries, and rescues what is readable from a damaged row."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from tropism.errors import DivergedError

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)
RawLine = tuple[int, int, msgspec.Raw]  # session, seq, entry

PIECE_BYTES = 2**20  # of entries in a row; a row is deleted at once

_rows = msgspec.json.Decoder(list[RawLine])
_line = msgspec.json.Decoder(RawLine)
_value: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_LINE_START = re.compile(rb"\[(\d+),(\d+),\[\"")


def decode_row(row: bytes) -> tuple[list[RawLine], set[int | None]]:
    """The lines of a row, and the numbers of the sessions of unreadable ones; None for an unknown session."""
    try:
        lines = _rows.decode(row)
        return lines, set()
    except DECODE_ERRORS:
        return _rescue(row)


def split_lines(lines: list[RawLine]) -> Iterator[list[RawLine]]:
    """Lists of lines for rows of limited size, in order."""
    start = size = 0
    for end, (_, _, entry) in enumerate(lines):
        if size + len(entry) > PIECE_BYTES and end > start:
            yield lines[start:end]
            start, size = end, 0
        size += len(entry)
    if lines:
        yield lines[start:]


def _rescue(row: bytes) -> tuple[list[RawLine], set[int | None]]:
    starts = list(_LINE_START.finditer(row))
    ends = [match.start() for match in starts[1:]] + [len(row)]
    lines, damaged = list[RawLine](), set[int | None]()
    if not starts or starts[0].start() != 1:
        damaged.add(None)
    for match, end in zip(starts, ends, strict=True):
        text = row[match.start() : end]
        text = text.removesuffix(b",") if end < len(row) else text.removesuffix(b"]")
        try:
            line = _line.decode(text)
            _value.decode(line[2])
            lines.append((line[0], line[1], line[2].copy()))
        except DECODE_ERRORS:
            damaged.add(int(match[1]))
    return lines, damaged


def damaged_error() -> DivergedError:
    message = "the journal is damaged: it has this session, but not all entries of its episode; a reset opens another"
    return DivergedError("journal", "damaged", "all entries of the episode", message)
