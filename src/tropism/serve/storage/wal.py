"""Reads SQLite's write-ahead log, to find commits in it that SQLite does not recover."""

import struct
from pathlib import Path

HEADER = struct.Struct(">6I8s")  # magic, version, page size, checkpoint, salts; checksum
FRAME = struct.Struct(">2I8s8x")  # page, size of the file after a commit (0: no commit), salts; checksum
MAGIC = 0x377F0682  # the lowest bit is set if the checksums are big-endian
MASK = 2**32 - 1


def read_commits(path: Path) -> list[int]:
    """The numbers, from 1, of the complete frames that end a commit in the log, before SQLite opens it."""
    try:
        file = path.open("rb")
    except OSError:  # SQLite reports what is wrong with the path
        return []
    with file:
        head = file.read(HEADER.size)
        if len(head) < HEADER.size:
            return []  # SQLite had not written it yet
        _, _, page_size, *_ = HEADER.unpack(head)
        valid = _is_valid(head)
        salts, size, commits, number = head[16:24] if valid else None, path.stat().st_size, list[int](), 0
        step = FRAME.size + (page_size if valid else _guess_page_size(path))
        for start in range(HEADER.size, size - step + 1, step):
            file.seek(start)
            _, commit, frame_salts = FRAME.unpack(file.read(FRAME.size))
            number, salts = number + 1, frame_salts if salts is None else salts
            if commit and frame_salts == salts:  # others were left by an earlier generation of the log
                commits.append(number)
    return commits


def _guess_page_size(path: Path) -> int:
    """The page size of the database that this log belongs to."""
    with Path(str(path).removesuffix("-wal")).open("rb") as file:
        (size,) = struct.unpack_from(">H", file.read(18), 16)
    return 65536 if size == 1 else max(size, 512)


def _is_valid(head: bytes) -> bool:
    magic, *_ = HEADER.unpack(head)
    if magic & ~1 != MAGIC:
        return False
    order = ">" if magic & 1 else "<"
    first = second = 0
    words = struct.unpack(f"{order}6I", head[:24])
    for one, two in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & MASK
        second = (second + two + first) & MASK
    return struct.pack(">2I", first, second) == head[24:32]
