"""The manifest of a folder of recordings: environment, params, columns, versions, and shards with digests."""

import json
import platform
from dataclasses import asdict, dataclass, replace
from hashlib import file_digest
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from tropism import __version__
from tropism.core.params import write_params
from tropism.core.registry import identify
from tropism.core.session.session import Session
from tropism.core.spaces import Space
from tropism.errors import ValidationError
from tropism.record.columns import Column, NumericColumn, column_from_json, column_of

MANIFEST = "manifest.json"
FORMAT = 2


@dataclass(frozen=True)
class Shard:
    """One Parquet file; `seeds` are those of the episodes that start in it."""

    file: str
    rows: int
    seeds: list[int | None]
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """`env` identifies the environment: {"id", "arguments"}, {"gymnasium"}, or None if it cannot be created by name.

    For a class without an id it is {"class", "arguments"}, for information only: names in a file are not imported.

    `params` are by name; large arrays, which are not stored, are None.
    """

    env: dict[str, Any] | None
    params: dict[str, Any]
    action: Column
    observation: Column
    spaces: dict[str, Any]  # JSON Schema, for information only
    versions: dict[str, Any]
    shards: tuple[Shard, ...] = ()
    memory: Column | None = None  # the agent's, a vector; None if it is not recorded

    @classmethod
    def of(cls, session: Session, memory_size: int = 0) -> "Manifest":
        """The manifest of recordings of this session, with an agent's memory of this many numbers."""
        params = write_params(session.params)
        plain = cls.for_spaces(identify(session.env), params, session.action_space, session.observation_space)
        return replace(plain, memory=NumericColumn(np.dtype(np.float32), (memory_size,))) if memory_size else plain

    @classmethod
    def for_spaces(cls, env: Any, params: dict[str, Any], action: Space, observation: Space) -> "Manifest":
        schemas = {"action": action.json_schema(), "observation": observation.json_schema()}
        return cls(env, params, column_of(action), column_of(observation), schemas, versions())

    @property
    def schema(self) -> pa.Schema:
        """One row per step; row 0 of an episode is its reset, or the step where it was forked."""
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
                *([] if self.memory is None else [("memory", self.memory.type())]),
            ]
        )

    @property
    def subject(self) -> dict[str, Any]:
        """What all recordings in one folder share."""
        columns = {"action": self.action.describe(), "observation": self.observation.describe()}
        columns |= {} if self.memory is None else {"memory": self.memory.describe()}
        return {"env": self.env, "params": self.params, "columns": columns}

    def header(self) -> dict[str, Any]:
        """All fields except the shards, as JSON."""
        return {"format": FORMAT, **self.subject, "spaces": self.spaces, "versions": self.versions}

    def write(self, folder: Path) -> None:
        """Replace the file atomically: readers see the old or the new one."""
        lines = [f' "{name}": {json.dumps(value)}' for name, value in self.header().items()]
        shards = ",\n  ".join(json.dumps(asdict(shard)) for shard in self.shards)
        temporary = folder / f"{MANIFEST}.new"
        temporary.write_text("{\n" + ",\n".join([*lines, f' "shards": [\n  {shards}\n ]']) + "\n}\n")
        temporary.replace(folder / MANIFEST)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        path = folder / MANIFEST
        if not path.is_file():
            raise ValidationError("folder", str(folder), f"a folder of recordings, with a {MANIFEST}")
        try:
            data = json.loads(path.read_text())
        except ValueError as error:
            raise ValidationError("manifest", str(path), f"a manifest written by Tropism ({error})") from None
        return cls.from_json(data, str(path))

    @classmethod
    def from_json(cls, data: Any, path: str) -> "Manifest":
        """The inverse of `header` and `write`."""
        try:
            version, tropism = data["format"], data["versions"]["tropism"]
            if version != FORMAT:
                raise ValidationError("format", version, f"{FORMAT}; this folder was written by Tropism {tropism}")
            action, observation = (column_from_json(data["columns"][name]) for name in ("action", "observation"))
            memory = data["columns"].get("memory")
            shards = tuple(Shard(**shard) for shard in data.get("shards", ()))
            about = data["spaces"], data["versions"], shards, memory and column_from_json(memory)
            return cls(data["env"], data["params"], action, observation, *about)
        except (KeyError, TypeError) as error:
            raise ValidationError("manifest", path, f"a manifest written by Tropism ({error!r})") from None

    def check_same_environment(self, other: "Manifest", folder: Path) -> None:
        """Reject recordings of another environment."""
        ours, theirs = (json.loads(json.dumps(each.subject)) for each in (self, other))
        for name in ours:
            if ours[name] != theirs[name]:
                value, expected = theirs[name], f"another folder: {folder} has recordings with {name} {ours[name]}"
                raise ValidationError(name, value, expected)


def versions() -> dict[str, Any]:
    """Versions that can affect an episode, besides its seed, options and actions."""
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
