"""What a folder of recordings is of: environment, params, columns, versions, and its shards with their digests."""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import file_digest
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from tropism import __version__
from tropism.core.registry import identify
from tropism.core.session import snapshot
from tropism.core.session.session import Session
from tropism.core.spaces import Space
from tropism.errors import ValidationError
from tropism.record.columns import Column, column, column_of

NAME = "manifest.json"
FORMAT = 1  # what this Tropism writes; it reads this and older ones


@dataclass(frozen=True)
class Shard:
    """One Parquet file; `seeds` are those of the episodes that begin in it."""

    file: str
    rows: int
    seeds: list[int | None]
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """`env` says how to make the environment: {"id", "arguments"}, {"gymnasium"}, or None where nothing can.

    That of a class without an id is {"class", "arguments"}: for people, since nothing that a file names is imported.

    `params` are by name, those that were not written down (large arrays) None.
    """

    env: dict[str, Any] | None
    params: dict[str, Any]
    action: Column
    observation: Column
    spaces: dict[str, Any]  # JSON Schema, for people
    versions: dict[str, Any]
    shards: tuple[Shard, ...] = ()

    @classmethod
    def of(cls, session: Session) -> "Manifest":
        """That of what this session does."""
        names = (jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(session.params))
        params = dict(zip(names, snapshot.write_params(session.params), strict=True))
        return cls.made(identify(session.env), params, session.action_space, session.observation_space)

    @classmethod
    def made(cls, env: Any, params: dict[str, Any], action: Space, observation: Space) -> "Manifest":
        schemas = {"action": action.json_schema(), "observation": observation.json_schema()}
        return cls(env, params, column_of(action), column_of(observation), schemas, versions())

    @property
    def schema(self) -> pa.Schema:
        """One row a step; row 0 of an episode is its reset, or the moment where it was forked."""
        return pa.schema(
            [
                ("episode", pa.int64()),
                ("step", pa.int32()),
                ("action", self.action.type()),
                ("obs", self.observation.type()),
                ("reward", pa.float64()),
                ("terminated", pa.bool_()),
                ("truncated", pa.bool_()),
                ("info", pa.string()),
                ("seed", pa.uint64()),
                ("options", pa.string()),
                ("episode_id", pa.string()),
                ("parent", pa.int64()),
            ]
        )

    @property
    def subject(self) -> dict[str, Any]:
        """What all rows of one folder have in common."""
        columns = {"action": self.action.describe(), "observation": self.observation.describe()}
        return {"env": self.env, "params": self.params, "columns": columns}

    def head(self) -> dict[str, Any]:
        """All but the shards, as JSON."""
        return {"format": FORMAT, **self.subject, "spaces": self.spaces, "versions": self.versions}

    def write(self, folder: Path) -> None:
        """Beside the old one, then in its place: a reader sees the one or the other."""
        lines = [f' "{name}": {json.dumps(value)}' for name, value in self.head().items()]
        shards = ",\n  ".join(json.dumps(asdict(shard)) for shard in self.shards)
        beside = folder / f"{NAME}.new"
        beside.write_text("{\n" + ",\n".join([*lines, f' "shards": [\n  {shards}\n ]']) + "\n}\n")
        beside.replace(folder / NAME)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        path = folder / NAME
        if not path.is_file():
            raise ValidationError("folder", str(folder), f"a folder with recordings: one that has a {NAME}")
        try:
            data = json.loads(path.read_text())
        except ValueError as error:
            raise ValidationError("manifest", str(path), f"one that Tropism wrote ({error})") from None
        return cls.from_json(data, str(path))

    @classmethod
    def from_json(cls, data: Any, place: str) -> "Manifest":
        """What `head` and `write` wrote."""
        try:
            written, tropism = data["format"], data["versions"]["tropism"]
            if written > FORMAT:
                raise ValidationError("format", written, f"at most {FORMAT}; a newer Tropism wrote it, {tropism}")
            action, observation = (column(data["columns"][name]) for name in ("action", "observation"))
            shards = tuple(Shard(**shard) for shard in data.get("shards", ()))
            return cls(data["env"], data["params"], action, observation, data["spaces"], data["versions"], shards)
        except (KeyError, TypeError) as error:
            raise ValidationError("manifest", place, f"one that Tropism wrote ({error!r})") from None

    def with_shard(self, shard: Shard) -> "Manifest":
        return replace(self, shards=(*self.shards, shard))

    def check_same_subject(self, other: "Manifest", folder: Path) -> None:
        """Refuse to mix recordings of two environments."""
        ours, theirs = (json.loads(json.dumps(each.subject)) for each in (self, other))
        for name in ours:
            if ours[name] != theirs[name]:
                value, expected = theirs[name], f"another folder: {folder} has recordings with {name} {ours[name]}"
                raise ValidationError(name, value, expected)


def versions() -> dict[str, Any]:
    """What may change an episode besides its seed, options and actions."""
    return {
        "tropism": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "x64": bool(jax.config.read("jax_enable_x64")),
    }


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def params_of(env: Any, written: Mapping[str, Any]) -> Any:
    """The params of this environment that a manifest has."""
    return snapshot.read_params(env.default_params(), list(written.values()))
