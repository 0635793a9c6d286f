"""Writes episodes to a folder: first to a tail, from there to shards."""

import fcntl
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tropism.core.episode import Timestep
from tropism.errors import StateError, ValidationError
from tropism.record.columns import dumps
from tropism.record.manifest import MANIFEST, Manifest, Shard, sha256
from tropism.record.tail import STEM, SUFFIX, Tail, read_tail, shard_path, tail_numbers, tail_path

SHARD_ROWS = 2**16
SHARD_BYTES = 2**26  # of the tail, before compression
REPEATED: Any = ["episode", "info", "options", "episode_id"]  # columns worth a dictionary; observations seldom are
LOCK = ".lock"


class Writer:
    """The only writer of a folder, for any number of concurrent episodes, from any thread.

    When `begin`, `fork` and `step` return, their data has reached the operating system and survives a crash of this
    process. A failed write raises an OSError and records nothing.
    """

    def __init__(
        self, folder: str | Path, manifest: Manifest, *, shard_rows: int = SHARD_ROWS, shard_bytes: int = SHARD_BYTES
    ):
        self.folder = Path(folder)
        self.shard_rows, self.shard_bytes = shard_rows, shard_bytes
        self._write_lock = threading.Lock()
        self._seal_executor = ThreadPoolExecutor(1, "tropism-record")
        self._pending_seals: list[Future[None]] = []
        self._tail: Tail | None = None
        _existing_manifest(self.folder, manifest)  # before locking: a rejected folder is not modified
        try:
            self._lock = _lock_folder(self.folder)
        except OSError as error:
            raise ValidationError("folder", str(folder), f"a writable folder ({error.strerror})") from None
        try:
            self._resume(manifest)
        except BaseException:
            os.close(self._lock)
            raise

    def _resume(self, manifest: Manifest) -> None:
        """Continue an existing folder; tails left by another process become shards."""
        known = _existing_manifest(self.folder, manifest)
        self.manifest = known or manifest
        if known is None:
            manifest.write(self.folder)
        for number in tail_numbers(self.folder):
            self._seal(number)
        self._number = 1 + max((int(Path(shard.file).stem[-6:]) for shard in self.manifest.shards), default=-1)
        self.episodes = sum(len(shard.seeds) for shard in self.manifest.shards)

    def begin(
        self, seed: int | None, options: Any, timestep: Timestep, episode_id: str | None = None, memory: Any = None
    ) -> int:
        """Record a reset and return the episode number."""
        first = {"step": 0, "seed": check_seed(seed), "options": dumps(options) if options else None}
        return self._begin(first | {"episode_id": episode_id} | self._memory(memory), timestep)

    def fork(self, parent: int, step: int, timestep: Timestep, seed: int | None = None, id: str | None = None) -> int:
        """Record a fork of `parent` at a step, optionally reseeded there, and return its episode number."""
        return self._begin({"step": step, "seed": check_seed(seed), "episode_id": id, "parent": parent}, timestep)

    def _begin(self, row: dict[str, Any], timestep: Timestep) -> int:
        with self._write_lock:
            number = self.episodes
            self._append({**row, "episode": number, **self._outcome(timestep)})
            self.episodes += 1
            return number

    def step(
        self, episode: int, step: int, action: Any, timestep: Timestep, seed: int | None = None, memory: Any = None
    ) -> None:
        """Record one step, counted from 1; `seed` is given if the episode was reseeded before this step."""
        row: dict[str, Any] = {"episode": episode, "step": step, "seed": check_seed(seed)}
        row |= {"action": self.manifest.action.write(action), **self._outcome(timestep)} | self._memory(memory)
        with self._write_lock:
            self._append(row)

    def _memory(self, memory: Any) -> dict[str, Any]:
        column = self.manifest.memory
        if (column is None) != (memory is None):
            expected = "no memory" if column is None else "the agent's memory"
            raise ValidationError("memory", memory, f"{expected}, as in the other recordings in {self.folder}")
        return {} if column is None else {"memory": column.write(memory)}

    def _outcome(self, timestep: Timestep) -> dict[str, Any]:
        obs, reward, terminated, truncated, info = timestep
        return {
            "obs": self.manifest.observation.write(obs),
            "reward": float(reward),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
            "info": dumps(info) if info else None,
        }

    def _append(self, row: dict[str, Any]) -> None:
        if self._lock < 0:
            raise StateError("writer", "closed", "an open writer", f"the writer of {self.folder} is closed")
        tail = self._tail = self._tail or Tail(tail_path(self.folder, self._number))
        tail.append({name: value for name, value in row.items() if value is not None})
        if tail.rows >= self.shard_rows or tail.size >= self.shard_bytes:
            self._rotate()

    def _rotate(self) -> None:
        """Start a new tail; a background thread turns the full one into a shard."""
        if self._tail is None:
            return
        self._tail.close()
        self._tail = None
        self._pending_seals.append(self._seal_executor.submit(self._seal, self._number))
        self._number += 1

    def _seal(self, number: int) -> None:
        """Turn a tail into a shard; after a crash at any point, one of the two is complete and listed."""
        tail, path = tail_path(self.folder, number), shard_path(self.folder, number)
        listed = any(shard.file == path.name for shard in self.manifest.shards)
        rows = read_tail(tail, self.manifest)
        if rows.num_rows and not listed:
            temporary = path.with_suffix(".new")
            pq.write_table(rows, temporary, compression="zstd", use_dictionary=REPEATED)
            shard = Shard(path.name, rows.num_rows, _seeds(rows), sha256(temporary))
            temporary.replace(path)
            self.manifest = replace(self.manifest, shards=(*self.manifest.shards, shard))
            self.manifest.write(self.folder)
        tail.unlink()

    def close(self) -> None:
        """Turn the remaining rows into a shard; idempotent."""
        with self._write_lock:
            if self._lock < 0:
                return
            try:
                self._rotate()
                self._seal_executor.shutdown()
                for sealed in self._pending_seals:
                    sealed.result()
            finally:
                os.close(self._lock)
                self._lock = -1

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _existing_manifest(folder: Path, manifest: Manifest) -> Manifest | None:
    """The folder's manifest, if any; rejects recordings of another environment, and damaged ones."""
    known, ours = None, set[str]()
    if (folder / MANIFEST).exists():
        known = Manifest.read(folder)
        known.check_same_environment(manifest, folder)
        # A tail stays until the manifest lists its shard.
        ours = {Path(shard.file).stem for shard in known.shards} | {tail.stem for tail in folder.glob(f"*{SUFFIX}")}
    for path in sorted(folder.glob(f"{STEM}*")):
        if path.stem not in ours:
            expected = f"recordings listed in a {MANIFEST}; {path.name} is not listed and might be overwritten"
            raise ValidationError("folder", str(folder), expected)
    return known


def _seeds(rows: pa.Table) -> list[int | None]:
    begins = (rows["step"].to_numpy() == 0) | rows["parent"].is_valid().to_numpy()
    return rows.filter(begins)["seed"].to_pylist()


def check_seed(seed: Any) -> Any:
    """The seed, unless it exceeds the 64 bits of its column."""
    if isinstance(seed, int) and seed >= 2**64:
        raise ValidationError("seed", seed, "less than 2**64, to be recorded")
    return seed


def _lock_folder(folder: Path) -> int:
    """Lock the folder until it is closed or this process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        message = f"another writer is recording into {folder}; choose another folder, or stop it first"
        raise StateError("folder", str(folder), "a folder without another writer", message) from None
    return lock
