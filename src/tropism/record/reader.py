"""Reads episodes out of a folder, also while it is being written."""

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

MOST_LOADED = 4  # files at a time
ATTEMPTS = 10  # a writer may turn a tail into a shard while we look


@dataclass(frozen=True, eq=False, repr=False)
class Episode:
    """An episode of n steps: n + 1 observations and infos, n of everything else.

    Arrays have the steps first; a Dict space's are dicts of arrays, messages are lists of dicts. `reseeds` are
    the seeds that forks went on with, by the first step they decide; `parent` is the episode and step of the fork.
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

    def __len__(self) -> int:
        """Steps."""
        return len(self.rewards)

    def __repr__(self) -> str:
        return f"Episode({self.number}, seed={self.seed}, steps={len(self)}, return={self.rewards.sum():.6g})"

    @cached_property
    def infos(self) -> list[dict[str, Any]]:
        return [json.loads(text) if text else {} for text in self.info_texts]

    def observation(self, step: int) -> Any:
        """What was seen after this many steps."""
        return self.columns["obs"].pick(self.observations, step)

    def action(self, step: int) -> Any:
        """What was done in this step, counted from 1."""
        return self.columns["action"].pick(self.actions, step - 1)


class Reader:
    """The recordings in a folder: iterate over the episodes, or take one by its number."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._loaded: dict[int, tuple[pa.Table, dict[int, NDArray[Any]]]] = {}
        self._files = self._find(ATTEMPTS)
        self._where: dict[int, list[int]] = {}  # the files an episode is in
        for number, numbers in enumerate(self._numbers()):
            for episode in numbers.tolist():
                self._where.setdefault(episode, []).append(number)

    def _find(self, attempts: int) -> list[Any]:
        """The files in the order they were written in; tails are read at once, because they may go."""
        try:
            return self._found()
        except FileNotFoundError as gone:
            if attempts > 1:
                return self._find(attempts - 1)
            expected = f"one with all files of its manifest; {gone.filename} is missing"
            raise ValidationError("folder", str(self.folder), expected) from None

    def _found(self) -> list[Any]:
        manifest = Manifest.read(self.folder)
        tails = [tail_path(self.folder, number) for number in tail_numbers(self.folder)]
        files: dict[str, Any] = {path.stem: read_tail(path, manifest) for path in tails}
        self.manifest = Manifest.read(self.folder)  # again: a tail that was gone when we looked is a shard now
        for shard in self.manifest.shards:
            (self.folder / shard.file).stat()
            files[Path(shard.file).stem] = shard
        return [files[stem] for stem in sorted(files)]

    def _numbers(self) -> Iterator[NDArray[Any]]:
        """The episodes of each file."""
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
        """Refuse a shard that is not as it was written."""
        path = self.folder / shard.file
        if (digest := sha256(path)) != shard.sha256:
            raise ValidationError("shard", str(path), f"the SHA-256 of the manifest, {shard.sha256}, not {digest}")

    def _rows_of(self, number: int) -> tuple[pa.Table, dict[int, NDArray[Any]]]:
        """The rows of a file, and which of them belong to each episode."""
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
            if len(self._loaded) > MOST_LOADED:
                del self._loaded[next(iter(self._loaded))]
        return self._loaded[number]

    @property
    def episodes(self) -> list[int]:
        """The numbers of all episodes, in the order they began in."""
        return sorted(self._where)

    def __len__(self) -> int:
        return len(self._where)

    def __iter__(self) -> Iterator[Episode]:
        return (self[number] for number in self.episodes)

    def __getitem__(self, number: int) -> Episode:
        if number not in self._where:
            expected = f"one of the {len(self)} episodes in {self.folder}, counted from 0"
            raise ValidationError("episode", number, expected)
        pieces, reseeds, parent = self._lineage(number)
        rows = pa.concat_tables(reversed(pieces)).combine_chunks()
        if (rows["step"].to_numpy() != np.arange(len(rows))).any():
            raise ValidationError("episode", number, "one of which every step was recorded")
        return self._episode(number, rows, reseeds, parent)

    def _lineage(self, number: int) -> tuple[list[pa.Table], dict[int, int], tuple[int, int] | None]:
        """The rows of an episode, last ones first: its own, those of the episode it is a fork of, and so on."""
        pieces: list[pa.Table] = []
        reseeds: dict[int, int] = {}
        forks: list[tuple[int, int]] = []
        end = 0  # the last step of the episodes before, which belongs to this one
        while True:
            tables = (self._rows_of(file) for file in self._where[number])
            rows = _latest(pa.concat_tables([table.take(groups[number]) for table, groups in tables]))
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
            end = min(step for _, step in forks)  # a fork may go back to before its parent was one

    def _episode(self, number: int, rows: pa.Table, reseeds: dict[int, int], parent: Any) -> Episode:
        columns = {"obs": self.manifest.observation, "action": self.manifest.action}
        steps = rows.slice(1)
        own = {step: seed for step, seed in enumerate(steps["seed"].to_pylist(), 1) if seed is not None}
        options = rows["options"][0].as_py()
        return Episode(
            number,
            rows["episode_id"][0].as_py(),
            rows["seed"][0].as_py(),
            json.loads(options) if options else {},
            parent,
            {**own, **reseeds},
            columns["obs"].stack(_whole(rows["obs"])),
            columns["action"].stack(_whole(steps["action"])),
            steps["reward"].to_numpy(),
            steps["terminated"].to_numpy(),
            steps["truncated"].to_numpy(),
            columns,
            rows["info"].to_pylist(),
        )

    def table(self) -> pa.Table:
        """Every row, as one table."""
        every = (self._rows_of(number)[0] for number in range(len(self._files)))
        return pa.concat_tables([self.manifest.schema.empty_table(), *every])


def _latest(rows: pa.Table) -> pa.Table:
    """Without what was done over: a step that was recorded, but never acknowledged, may be recorded again."""
    steps = rows["step"].to_numpy()
    least = np.minimum.accumulate(steps[::-1])[::-1]  # of this row and those after it
    kept = np.append(steps[:-1] < least[1:], True)
    return rows if kept.all() else rows.filter(kept)


def _whole(column: Any) -> Any:
    """A column as one array that begins at its first entry: slices of Arrow's structs do not."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else column.combine_chunks()
