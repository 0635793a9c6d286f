"""A file of checksummed records, appended with one `write` each; a damaged record does not affect the others."""

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

HEADER = struct.Struct("<8sQII")  # mark, number, size and checksum of the payload; a checksum of these follows
CHECKSUM = struct.Struct("<I")
START = HEADER.size + CHECKSUM.size  # of the payload in a record


class AppendLog:
    """Records are numbered from 1; `pending` are the payloads of those after record `moved`, in order.

    Each begins with the mark of its journal, so that those of another journal are not read. `lost_bytes` counts the
    bytes of the file that are not part of an intact record, and `missing_records` the records that are missing.
    """

    def __init__(self, path: Path, mark: bytes, moved: int):
        self._mark = mark
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        records = dict(read_records(path.read_bytes(), mark))
        self.last = max((moved, *records))
        self.pending = [payload for number, payload in sorted(records.items()) if number > moved]
        self._size = os.fstat(self._descriptor).st_size
        self.lost_bytes = self._size - sum(START + len(payload) for payload in records.values())
        missing = self.last - moved - len(self.pending)
        self.missing_records = missing or int(self.lost_bytes > 0)  # the last ones may be missing, too

    def append(self, payload: bytes) -> None:
        """Raises an `OSError` if the record cannot be written; it is then not read later."""
        header = HEADER.pack(self._mark, self.last + 1, len(payload), crc32(payload))
        record = header + CHECKSUM.pack(crc32(header)) + payload
        try:
            if os.write(self._descriptor, record) != len(record):
                raise OSError("no space is left for the log")
        except OSError:
            with suppress(OSError):  # otherwise a reader skips the incomplete record
                os.ftruncate(self._descriptor, self._size)
            self._size = os.fstat(self._descriptor).st_size
            raise
        self._size += len(record)
        self.last += 1
        self.pending.append(payload)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def truncate(self) -> None:
        """Remove all records from the file; numbers continue."""
        os.ftruncate(self._descriptor, 0)
        self._size = 0

    def close(self) -> None:
        os.close(self._descriptor)


def read_records(data: bytes, mark: bytes) -> Iterator[tuple[int, bytes]]:
    """The number and payload of each intact record."""
    position = data.find(mark)
    while position >= 0:
        payload = _payload(data, position)
        if payload is None:
            position = data.find(mark, position + 1)
        else:
            yield HEADER.unpack_from(data, position)[1], payload
            position = data.find(mark, position + START + len(payload))


def _payload(data: bytes, position: int) -> bytes | None:
    """The payload of the record at this position; None if the record is damaged."""
    start = position + START
    if start > len(data):
        return None
    header = data[position : start - CHECKSUM.size]
    _, _, size, checksum = HEADER.unpack(header)
    payload = data[start : start + size]
    intact = CHECKSUM.unpack_from(data, start - CHECKSUM.size)[0] == crc32(header) and crc32(payload) == checksum
    return payload if intact and len(payload) == size else None
