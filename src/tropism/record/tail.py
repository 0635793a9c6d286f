"""Tails: append-only files of rows that are not in a shard yet, readable up to the last complete row."""

import os
import struct
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pyarrow as pa

from tropism.errors import ValidationError
from tropism.record.manifest import Manifest

SUFFIX = ".tail"
STEM = "steps-"
HEAD = struct.Struct("<II")  # before each row: its size in bytes and its checksum
CHUNK = 256  # rows read at a time

_encode = msgspec.msgpack.Encoder(enc_hook=lambda array: array.tobytes()).encode
_decode = msgspec.msgpack.Decoder().decode


class Tail:
    """Appends rows to a file. When `append` returns, the row has reached the operating system; if it raises, not."""

    def __init__(self, path: Path):
        self.path = path
        self.rows = self.size = 0
        self._file = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND, 0o666)

    def append(self, row: dict[str, Any]) -> None:
        data = _encode(row)
        data = HEAD.pack(len(data), crc32(data)) + data
        try:
            written = os.write(self._file, data)
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            os.ftruncate(self._file, self.size)  # a partial row would hide later ones
            raise
        self.rows += 1
        self.size += len(data)

    def close(self) -> None:
        os.close(self._file)


def read_tail(path: Path, manifest: Manifest) -> pa.Table:
    """The rows of a tail, without a last row truncated by a crash."""
    kind, rows = pa.struct(manifest.schema), _rows(path, manifest)
    chunks: list[Any] = []
    while chunk := list(islice(rows, CHUNK)):
        chunks.append(pa.RecordBatch.from_struct_array(pa.array(chunk, kind)))
        time.sleep(0)  # let other threads run
    return pa.Table.from_batches(chunks, manifest.schema).combine_chunks()


def _rows(path: Path, manifest: Manifest) -> Iterator[dict[str, Any]]:
    data, at = path.read_bytes(), 0
    while at + HEAD.size < len(data):
        size, checksum = HEAD.unpack_from(data, at)
        at += HEAD.size
        if at + size > len(data):
            return
        if crc32(data[at : at + size]) != checksum:
            raise ValidationError("tail", str(path), f"intact rows; the file is damaged at byte {at}")
        row = _decode(data[at : at + size])
        row["obs"] = manifest.observation.unpack(row["obs"])
        if "action" in row:
            row["action"] = manifest.action.unpack(row["action"])
        if manifest.memory is not None:
            row["memory"] = manifest.memory.unpack(row["memory"])
        yield row
        at += size


def shard_path(folder: Path, number: int) -> Path:
    return folder / f"{STEM}{number:06}.parquet"


def tail_path(folder: Path, number: int) -> Path:
    return folder / f"{STEM}{number:06}{SUFFIX}"


def tail_numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix(STEM)) for path in folder.glob(f"{STEM}*{SUFFIX}"))
