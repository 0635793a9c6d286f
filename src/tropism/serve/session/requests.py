"""Request types, and how they are parsed. The OpenAPI document has their schemas."""

from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from tropism.core.session.session import Session
from tropism.errors import ServerError, StepConflictError, ValidationError, shorten

LONGEST_NUMBER = 18  # digits
FEW_VALUES = 4096
UNCONFIRMED = ("snapshot", "write_file")  # refused, as a fork of the current position, until that is confirmed

Number = Annotated[int, Meta(ge=0, le=10**LONGEST_NUMBER - 1)]
Seed = Annotated[
    Any,  # `Session.reset` and `Session.fork` check it
    Meta(
        description="Determines all randomness of the episode.",
        extra_json_schema={"type": ["integer", "null"], "minimum": 0},
    ),
]
EpisodeId = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 255})]  # `Session.reset` checks it
RequestId = Annotated[
    str,  # `request_key` checks its length
    Meta(
        description="Repeating it returns the recorded reply and does not step again.",
        extra_json_schema={"maxLength": 255},
    ),
]
After = Annotated[Number, Meta(description="Refuse the step unless the episode has this many.")]
WatchId = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9_-]+$"})]
Action = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/$defs/Action"})]  # of the environment
Options = Annotated[dict[str, Any], Meta(description="Options of this environment, such as params.")]
EnvironmentId = Annotated[
    str, Meta(description="Which environment.", extra_json_schema={"$ref": "#/$defs/Environment"})
]

T = TypeVar("T")


class EpisodePosition(NamedTuple):
    """Where the caller of a step expects the episode to be, as far as it says so."""

    after: int | None = None
    episode_id: str | None = None

    def check(self, kind: str, data: dict[str, Any], session: Session, is_doubtful: bool) -> None:
        """Refuse a step that is meant for another position, or that says nothing where entries may be lost.

        There, all else is refused that would give the position to another session, or add to it.
        """
        (after, episode_id), count = self, session.step_count
        if kind != "step":
            if after is not None or episode_id is not None:
                raise ValidationError("after", after, "none: only a step takes after and episode_id")
            if is_doubtful and (kind in UNCONFIRMED or (kind == "fork" and data.get("from", "now") == "now")):
                lost = (
                    f"the episode is at step {count}, and later ones may be lost, since the machine or its disk failed"
                )
                raise StepConflictError(f"{lost}; first confirm this by a step with after: {count}", count)
            return
        if after is None and is_doubtful:
            reason = (
                f"and later ones may be lost, since the machine or its disk failed; to continue there, repeat it with "
                f"after: {count}"
            )
        elif after not in (None, count):
            reason = f"not {after}"
        elif episode_id not in (None, session.episode_id):
            reason = f"of another episode than {shorten(episode_id)}"
        else:
            return
        raise StepConflictError(f"the step was not applied: the episode is at step {count}, {reason}", count)


ANYWHERE = EpisodePosition()


class EmptyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request without data."""


class ResetRequest(msgspec.Struct):
    """Further fields are options, as OpenEnv's clients send them."""

    seed: Seed = None
    episode_id: EpisodeId | None = None
    options: Options | None = None


class StepRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A step over HTTP; on a socket it is the bare action."""

    action: Action
    timeout_s: Annotated[float, Meta(gt=0)] | None = None
    after: After | None = None
    episode_id: Annotated[str, Meta(description="Refuse the step in any other episode.")] | None = None

    @property
    def position(self) -> "EpisodePosition":
        return EpisodePosition(self.after, self.episode_id)


class ActRequest(msgspec.Struct, forbid_unknown_fields=True):
    action: Annotated[Action | str, Meta(description="The action, or the action in words.")]


class ConfirmingActRequest(ActRequest):
    """What the tool of an agent takes while the last steps of its session may be lost."""

    after: After | None = None


class SessionToolRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    session_id: Annotated[str, Meta(description="The session_id that open_session returned.")]


class OpenSessionRequest(msgspec.Struct, forbid_unknown_fields=True):
    environment: EnvironmentId | None = None


class BeginEpisodeRequest(SessionToolRequest):
    seed: Seed = None
    episode_id: EpisodeId | None = None
    options: Options | None = None
    request_id: RequestId | None = None


class TakeActionRequest(SessionToolRequest):
    action: Annotated[Action | str, Meta(description="The action, or the action in words.")]
    request_id: RequestId | None = None
    after: After | None = None


class ForkSessionRequest(SessionToolRequest):
    step: Annotated[Number, Meta(description="The step to fork at; by default the current one.")] | None = None
    seed: Seed = None
    request_id: RequestId | None = None


class HistoryRequest(msgspec.Struct, forbid_unknown_fields=True):
    start: Annotated[Number, Meta(description="The first row to return.")] = msgspec.field(default=0, name="from")


class StepOrigin(msgspec.Struct, forbid_unknown_fields=True):
    """The position after this many steps of the current episode, which is replayed."""

    step: Number


class ForkRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`origin` is the session's current position, one of its snapshots, or a step of its episode."""

    origin: Annotated[str | StepOrigin, Meta(description="'now', the id of a snapshot, or a step.")] = msgspec.field(
        default="now", name="from"
    )
    seed: Seed = None


class RestoreRequest(msgspec.Struct, forbid_unknown_fields=True):
    origin: Annotated[str, Meta(description="The id of a snapshot of this session.")] = msgspec.field(name="from")


class FileRequest(msgspec.Struct, forbid_unknown_fields=True):
    path: str


class UploadRequest(msgspec.Struct, forbid_unknown_fields=True):
    """On a socket, `data` is in base64; over HTTP it is the body."""

    path: str
    data: bytes


class RecordingsRequest(msgspec.Struct, forbid_unknown_fields=True):
    before: Annotated[Number, Meta(description="Only recordings with a smaller number.")] | None = None


class PictureRequest(msgspec.Struct, forbid_unknown_fields=True):
    step: Annotated[Number, Meta(description="The number of steps before the picture.")]
    of: Annotated[str, Meta(description="A field of the observation that is an image (x-image).")] | None = None


class ForkStepRequest(msgspec.Struct, forbid_unknown_fields=True):
    step: Number
    seed: Seed = None


def convert(data: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ServerError("VALIDATION_ERROR", str(error)) from None


def has_few_values(data: dict[str, Any]) -> bool:
    """Whether the time to validate and copy a request is short."""
    count, containers = 0, [data]
    while containers:
        container = containers.pop()
        count += len(container)
        if count > FEW_VALUES:
            return False
        values: Any = container.values() if type(container) is dict else container
        containers += [value for value in values if type(value) is dict or type(value) is list]
    return True


def parse_reset(data: dict[str, Any]) -> ResetRequest:
    """Unknown fields are merged into `options`."""
    request = convert(data, ResetRequest)
    extra = {name: value for name, value in data.items() if name not in ResetRequest.__struct_fields__}
    if not extra:
        return request
    options = request.options or {}
    for name, value in extra.items():
        if name in options and options[name] != value:
            raise ValidationError(name, value, f"the value it has in options, {shorten(options[name])}")
    request.options = options | extra
    return request


def parse_whole_number(text: str) -> int | None:
    """None if the text is not a whole number, or has too many digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER else None
