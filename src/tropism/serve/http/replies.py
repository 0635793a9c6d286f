"""The types of replies, from which the OpenAPI document and the documentation are generated."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from tropism.serve.session.requests import Number

Observation = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/$defs/Observation"})]  # of the environment


class TimestepReply(Struct):
    observation: Observation
    reward: float | None
    done: bool
    terminated: bool
    truncated: bool
    metadata: dict[str, Any] | None
    step_count: Number


class ResetReply(TimestepReply):
    episode_id: str
    session_id: str
    view: str
    agent_id: str
    environment: str


class StateReply(Struct):
    episode_id: str | None
    step_count: Number


class SnapshotReply(StateReply):
    snapshot_id: str


class ForkReply(StateReply):
    session_id: str
    view: str
    agent_id: str


class HistoryReply(Struct):
    """Rows are steps, or the new seed of a fork; `whole` is true if they include every step of the episode."""

    seed: int | None
    options: dict[str, Any] | None
    episode_id: str | None
    start: Number = field(name="from")
    steps: list[dict[str, Any]]
    whole: bool
    step_count: Number


class CloseReply(Struct):
    closed: bool
    step_count: Number


class HealthReply(Struct):
    """`absent` maps the environments that are not available to the reason."""

    status: str
    version: str
    absent: dict[str, str]


class ReadyReply(Struct):
    status: str


class EnvironmentReply(Struct):
    """`recordings` is their number, null if the server does not record."""

    name: str
    description: str
    version: str
    url: str
    pure: bool
    blocking: bool
    replayable: bool
    recordings: int | None


class SchemaReply(Struct):
    action: dict[str, Any]
    observation: dict[str, Any]
    state: dict[str, Any]


class SessionRow(StateReply):
    """`view` is the watch id, which permits reading and forking the session, but not stepping it."""

    view: str
    environment: str
    lifecycle: str
    attached: bool
    total_reward: float | None
    age: float
    idle: float


class SessionsReply(Struct):
    count: int
    sessions: list[SessionRow]


class TimelineReply(Struct):
    """`take` changes when another episode begins. Continue a long history from its last row, up to `step_count`."""

    environment: str
    take: int
    seed: str | None
    options: dict[str, Any] | None
    lifecycle: str
    step_count: Number
    start: Number = field(name="from")
    rows: list[dict[str, Any]]


class FilesReply(Struct):
    """The size of each file in bytes, by path."""

    files: dict[str, int]
    step_count: Number


class FileReply(Struct):
    path: str
    size: int
    step_count: Number


class RecordingRow(Struct, omit_defaults=True):
    """`parent` is the episode and the step of a fork; `error` says why the recording cannot be read."""

    number: Number
    episode_id: str | None = None
    seed: str | None = None
    steps: Number = 0
    total_reward: float | None = field(default=None, name="return")
    lifecycle: Literal["ready", "terminated", "truncated"] = "ready"
    parent: tuple[int, int] | None = None
    error: str | None = None


class RecordingsReply(Struct):
    environment: str
    count: Number
    episodes: list[RecordingRow]
