"""Rows that are in no shard yet: an Arrow stream which is readable up to the last row that was written whole."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

SUFFIX = ".arrow"
STEM = "steps-"
TORN = (pa.ArrowInvalid, OSError)  # how Arrow says that a message ends too soon


class Tail:
    """Appends rows to a file; each append has reached the operating system when it returns, or has not happened."""

    def __init__(self, path: Path, schema: pa.Schema):
        self.path = path
        self.rows = 0
        self._type = pa.struct(schema)
        self._file = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND, 0o666)
        self.size = 0
        try:
            self._write(schema.serialize())
        except BaseException:
            self.close()
            path.unlink()
            raise

    def append(self, rows: list[dict[str, Any]]) -> None:
        batch = pa.RecordBatch.from_struct_array(pa.array(rows, self._type))
        self._write(batch.serialize())
        self.rows += len(rows)

    def _write(self, data: Any) -> None:
        """All of it or nothing: a disk that fills up half-way would leave rows that hide those after them."""
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self.size += len(memoryview(data))

    def close(self) -> None:
        os.close(self._file)


def read_tail(path: Path, schema: pa.Schema) -> pa.Table:
    """The rows of a tail; one that was cut short by a crash is left out."""
    data = pa.py_buffer(path.read_bytes())
    try:
        rows = pa.ipc.open_stream(data).read_all()  # without Python's lock, so that nobody waits
    except TORN:
        rows = pa.Table.from_batches(_batches(data), schema)
    return rows.combine_chunks()


def _batches(data: Any) -> Iterator[pa.RecordBatch]:
    try:
        yield from pa.ipc.open_stream(data)
    except TORN:
        return


def shard_path(folder: Path, number: int) -> Path:
    return folder / f"{STEM}{number:06}.parquet"


def tail_path(folder: Path, number: int) -> Path:
    return folder / f"{STEM}{number:06}{SUFFIX}"


def tail_numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix(STEM)) for path in folder.glob(f"{STEM}*{SUFFIX}"))
