"""Writes episodes into a folder: first into a tail, from there into shards."""

import fcntl
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tropism.core.episode import Timestep
from tropism.errors import StateError, ValidationError
from tropism.record.columns import dumps
from tropism.record.manifest import NAME, Manifest, Shard, sha256
from tropism.record.tail import STEM, SUFFIX, Tail, read_tail, shard_path, tail_numbers, tail_path

SHARD_ROWS = 2**16
SHARD_BYTES = 2**26  # of the tail, before compression
REPEATED: Any = ["episode", "info", "options", "episode_id"]  # columns worth a dictionary; observations seldom are
LOCK = ".lock"


class Writer:
    """The one writer of a folder, for any number of episodes at a time and from any thread.

    What `begin`, `fork` and `step` were given is with the operating system, out of reach of a crash of this
    process, when they return. What cannot be written raises an OSError and is not recorded.
    """

    def __init__(
        self, folder: str | Path, manifest: Manifest, *, shard_rows: int = SHARD_ROWS, shard_bytes: int = SHARD_BYTES
    ):
        self.folder = Path(folder)
        self.shard_rows, self.shard_bytes = shard_rows, shard_bytes
        self._writing = threading.Lock()
        self._sealing = ThreadPoolExecutor(1, "tropism-record")
        self._sealed: list[Future[None]] = []
        self._tail: Tail | None = None
        _known(self.folder, manifest)  # what is refused is left as it is, without a lock
        try:
            self._lock = _locked(self.folder)
        except OSError as error:
            raise ValidationError("folder", str(folder), f"one that can be written ({error.strerror})") from None
        try:
            self._take_up(manifest)
        except BaseException:
            os.close(self._lock)
            raise

    def _take_up(self, manifest: Manifest) -> None:
        """Go on with what the folder has; rows that another process left in a tail become a shard."""
        known = _known(self.folder, manifest)
        self.manifest = known or manifest
        if known is None:
            manifest.write(self.folder)
        for number in tail_numbers(self.folder):
            self._seal(number)
        self._number = 1 + max((int(Path(shard.file).stem[-6:]) for shard in self.manifest.shards), default=-1)
        self.episodes = sum(len(shard.seeds) for shard in self.manifest.shards)

    def begin(self, seed: int | None, options: Any, timestep: Timestep, episode_id: str | None = None) -> int:
        """Record a reset; the number of the episode."""
        first = {"step": 0, "seed": recordable(seed), "options": dumps(options) if options else None}
        return self._begin(first | {"episode_id": episode_id}, timestep)

    def fork(self, parent: int, step: int, timestep: Timestep, seed: int | None = None, id: str | None = None) -> int:
        """Record that an episode goes on from a step of another, with a seed of its own from there; its number."""
        return self._begin({"step": step, "seed": recordable(seed), "episode_id": id, "parent": parent}, timestep)

    def _begin(self, row: dict[str, Any], timestep: Timestep) -> int:
        with self._writing:
            number = self.episodes
            self._append({**row, "episode": number, **self._seen(timestep)})
            self.episodes += 1
            return number

    def step(self, episode: int, step: int, action: Any, timestep: Timestep, seed: int | None = None) -> None:
        """Record one step, counted from 1; with a seed, it and those after it were drawn from that."""
        row = {"episode": episode, "step": step, "action": self.manifest.action.write(action), **self._seen(timestep)}
        row["seed"] = recordable(seed)
        with self._writing:
            self._append(row)

    def _seen(self, timestep: Timestep) -> dict[str, Any]:
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
            raise StateError("writer", "closed", "one that is open", f"cannot record: {self.folder} was closed")
        tail = self._tail = self._tail or Tail(tail_path(self.folder, self._number))
        tail.append({name: value for name, value in row.items() if value is not None})
        if tail.rows >= self.shard_rows or tail.size >= self.shard_bytes:
            self._rotate()

    def _rotate(self) -> None:
        """Begin another tail; the full one becomes a shard in a thread, while rows go on being written."""
        if self._tail is None:
            return
        self._tail.close()
        self._tail = None
        self._sealed.append(self._sealing.submit(self._seal, self._number))
        self._number += 1

    def _seal(self, number: int) -> None:
        """Turn a tail into a shard; whatever happens on the way, one of the two is whole and the manifest knows."""
        tail, path = tail_path(self.folder, number), shard_path(self.folder, number)
        listed = any(shard.file == path.name for shard in self.manifest.shards)
        rows = read_tail(tail, self.manifest)
        if rows.num_rows and not listed:
            beside = path.with_suffix(".new")
            pq.write_table(rows, beside, compression="zstd", use_dictionary=REPEATED)
            shard = Shard(path.name, rows.num_rows, _seeds(rows), sha256(beside))
            beside.replace(path)
            self.manifest = self.manifest.with_shard(shard)
            self.manifest.write(self.folder)
        tail.unlink()

    def close(self) -> None:
        """Turn what is left into a shard; closing twice is fine."""
        with self._writing:
            if self._lock < 0:
                return
            try:
                self._rotate()
                self._sealing.shutdown()
                for sealed in self._sealed:
                    sealed.result()
            finally:
                os.close(self._lock)
                self._lock = -1

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _known(folder: Path, manifest: Manifest) -> Manifest | None:
    """The folder's own manifest, where it has one; recordings of something else, and damaged ones, are refused."""
    known, ours = None, set[str]()
    if (folder / NAME).exists():
        known = Manifest.read(folder)
        known.check_same_subject(manifest, folder)
        # A tail stays until the manifest lists its shard.
        ours = {Path(shard.file).stem for shard in known.shards} | {tail.stem for tail in folder.glob(f"*{SUFFIX}")}
    for path in sorted(folder.glob(f"{STEM}*")):
        if path.stem not in ours:
            expected = f"recordings that a {NAME} lists; nothing tells of {path.name}, and it might be overwritten"
            raise ValidationError("folder", str(folder), expected)
    return known


def _seeds(rows: pa.Table) -> list[int | None]:
    begins = (rows["step"].to_numpy() == 0) | rows["parent"].is_valid().to_numpy()
    return rows.filter(begins)["seed"].to_pylist()


def recordable(seed: Any) -> Any:
    """The seed; one that no column has room for is refused."""
    if isinstance(seed, int) and seed >= 2**64:
        raise ValidationError("seed", seed, "less than 2**64, to be recorded")
    return seed


def _locked(folder: Path) -> int:
    """A lock on the folder, which goes with this process however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        message = f"somebody else is recording into {folder}; choose another folder, or stop them first"
        raise StateError("folder", str(folder), "a folder of one's own", message) from None
    return lock
