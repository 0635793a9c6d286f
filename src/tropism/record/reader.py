"""Reads episodes from a folder, also while it is being written."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tropism.errors import ValidationError
from tropism.record.columns import Column
from tropism.record.manifest import Manifest, Shard, sha256
from tropism.record.tail import read_tail, tail_numbers, tail_path

MAX_LOADED_FILES = 4  # files kept in memory
ATTEMPTS = 10  # a writer may turn a tail into a shard while the folder is listed


@dataclass(frozen=True, eq=False, repr=False)
class RecordedEpisode:
    """An episode of n steps: n + 1 observations and infos, n of everything else.

    The first axis of arrays is the step; Dict spaces give dicts of arrays, messages lists of dicts. `reseeds` maps
    steps to the seeds that take effect there in forks; `parent` is the episode and step of the fork. `memories` are the
    agent's, if they were recorded: the first one, and the one after each action.
    """

    number: int
    id: str | None
    seed: int | None
    options: dict[str, Any]
    parent: tuple[int, int] | None
    reseeds: dict[int, int]
    observations: Any
    actions: Any
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    columns: Mapping[str, Column]
    info_texts: list[str | None]
    memories: NDArray[Any] | None = None

    def __len__(self) -> int:
        """The number of steps."""
        return len(self.rewards)

    def __repr__(self) -> str:
        return f"RecordedEpisode({self.number}, seed={self.seed}, steps={len(self)}, return={self.rewards.sum():.6g})"

    @cached_property
    def infos(self) -> list[dict[str, Any]]:
        return [json.loads(text) if text else {} for text in self.info_texts]

    def observation(self, step: int) -> Any:
        """The observation after `step` steps."""
        return self.columns["obs"].pick(self.observations, step)

    def action(self, step: int) -> Any:
        """The action of this step, counted from 1."""
        return self.columns["action"].pick(self.actions, step - 1)


class Reader:
    """The recordings in a folder: iterate over the episodes, or index by number."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._loaded: dict[int, tuple[pa.Table, dict[int, NDArray[Any]]]] = {}
        self._files = self._list_files(ATTEMPTS)
        self._files_by_episode: dict[int, list[int]] = {}  # the files an episode is in
        for number, numbers in enumerate(self._episode_numbers()):
            for episode in numbers.tolist():
                self._files_by_episode.setdefault(episode, []).append(number)

    def _list_files(self, attempts: int) -> list[Any]:
        """The files in the order they were written; tails are read immediately, because they may be deleted."""
        try:
            return self._scan()
        except FileNotFoundError as missing:
            if attempts > 1:
                return self._list_files(attempts - 1)
            expected = f"a folder with all files of its manifest; {missing.filename} is missing"
            raise ValidationError("folder", str(self.folder), expected) from None

    def _scan(self) -> list[Any]:
        manifest = Manifest.read(self.folder)
        tails = [tail_path(self.folder, number) for number in tail_numbers(self.folder)]
        files: dict[str, Any] = {path.stem: read_tail(path, manifest) for path in tails}
        self.manifest = Manifest.read(self.folder)  # again: a tail that was deleted meanwhile is a shard now
        for shard in self.manifest.shards:
            (self.folder / shard.file).stat()
            files[Path(shard.file).stem] = shard
        return [files[stem] for stem in sorted(files)]

    def _episode_numbers(self) -> Iterator[NDArray[Any]]:
        """The episode numbers of each file."""
        for file in self._files:
            rows = self._read(file, ["episode"]) if isinstance(file, Shard) else file
            yield np.unique(rows["episode"].to_numpy())

    def _read(self, shard: Shard, columns: list[str] | None = None) -> pa.Table:
        path = self.folder / shard.file
        try:
            return pq.read_table(path, columns=columns, schema=self.manifest.schema)
        except (pa.ArrowInvalid, OSError) as error:
            self.check(shard)
            expected = f"a Parquet file with the columns of its manifest ({error})"
            raise ValidationError("shard", str(path), expected) from None

    def check(self, shard: Shard) -> None:
        """Reject a shard whose digest does not match the manifest."""
        path = self.folder / shard.file
        if (digest := sha256(path)) != shard.sha256:
            raise ValidationError("shard", str(path), f"the SHA-256 of the manifest, {shard.sha256}, not {digest}")

    def _load_rows(self, number: int) -> tuple[pa.Table, dict[int, NDArray[Any]]]:
        """The rows of a file, and the row indices of each episode."""
        if number not in self._loaded:
            file = self._files[number]
            if isinstance(file, Shard):
                self.check(file)
                file = self._read(file)
            episodes = file["episode"].to_numpy()
            order = np.argsort(episodes, kind="stable")
            numbers, starts = np.unique(episodes[order], return_index=True)
            groups = np.split(order, starts[1:])
            self._loaded[number] = file, dict(zip(numbers.tolist(), groups, strict=True))
            if len(self._loaded) > MAX_LOADED_FILES:
                del self._loaded[next(iter(self._loaded))]
        return self._loaded[number]

    @property
    def episodes(self) -> list[int]:
        """The numbers of all episodes, in the order they started."""
        return sorted(self._files_by_episode)

    def __len__(self) -> int:
        return len(self._files_by_episode)

    def __iter__(self) -> Iterator[RecordedEpisode]:
        return (self[number] for number in self.episodes)

    def __getitem__(self, number: int) -> RecordedEpisode:
        if number not in self._files_by_episode:
            expected = f"one of the {len(self)} episodes in {self.folder}, counted from 0"
            raise ValidationError("episode", number, expected)
        pieces, reseeds, parent = self._lineage(number)
        rows = pa.concat_tables(reversed(pieces)).combine_chunks()
        if (rows["step"].to_numpy() != np.arange(len(rows))).any():
            raise ValidationError("episode", number, "an episode with all steps recorded")
        return self._episode(number, rows, reseeds, parent)

    def _lineage(self, number: int) -> tuple[list[pa.Table], dict[int, int], tuple[int, int] | None]:
        """The rows of an episode, last first: its own, then those of its parent, and so on."""
        pieces: list[pa.Table] = []
        reseeds: dict[int, int] = {}
        forks: list[tuple[int, int]] = []
        end = 0  # the last step of the parent that belongs to this episode
        while True:
            tables = (self._load_rows(file) for file in self._files_by_episode[number])
            rows = _drop_superseded(pa.concat_tables([table.take(groups[number]) for table, groups in tables]))
            first = {name: rows[name][0].as_py() for name in ("step", "seed", "parent")}
            if forks:
                rows = rows.slice(0, max(0, end - first["step"] + 1))
            if first["parent"] is None:
                return [*pieces, rows], reseeds, forks[0] if forks else None
            if first["seed"] is not None and (not forks or end > first["step"]):
                reseeds.setdefault(first["step"] + 1, first["seed"])
            pieces.append(rows.slice(1))
            number = first["parent"]
            forks.append((number, first["step"]))
            end = min(step for _, step in forks)  # a fork may start before the step where its parent was forked

    def _episode(self, number: int, rows: pa.Table, reseeds: dict[int, int], parent: Any) -> RecordedEpisode:
        columns = {"obs": self.manifest.observation, "action": self.manifest.action}
        steps = rows.slice(1)
        own = {step: seed for step, seed in enumerate(steps["seed"].to_pylist(), 1) if seed is not None}
        options = rows["options"][0].as_py()
        return RecordedEpisode(
            number,
            rows["episode_id"][0].as_py(),
            rows["seed"][0].as_py(),
            json.loads(options) if options else {},
            parent,
            {**own, **reseeds},
            columns["obs"].stack(_contiguous(rows["obs"])),
            columns["action"].stack(_contiguous(steps["action"])),
            steps["reward"].to_numpy(),
            steps["terminated"].to_numpy(),
            steps["truncated"].to_numpy(),
            columns,
            rows["info"].to_pylist(),
            None if self.manifest.memory is None else self.manifest.memory.stack(_contiguous(rows["memory"])),
        )

    def table(self) -> pa.Table:
        """All rows as one table."""
        every = (self._load_rows(number)[0] for number in range(len(self._files)))
        return pa.concat_tables([self.manifest.schema.empty_table(), *every])


def _drop_superseded(rows: pa.Table) -> pa.Table:
    """Drop superseded rows: a step that was recorded but not acknowledged may be recorded again."""
    steps = rows["step"].to_numpy()
    least = np.minimum.accumulate(steps[::-1])[::-1]  # of this and later rows
    kept = np.append(steps[:-1] < least[1:], True)
    return rows if kept.all() else rows.filter(kept)


def _contiguous(column: Any) -> Any:
    """A column as one contiguous array; slices of Arrow structs keep an offset."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else column.combine_chunks()
