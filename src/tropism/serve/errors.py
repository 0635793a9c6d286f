"""Error replies: one JSON form for HTTP and sockets, without tracebacks."""

import logging
import secrets
from typing import Any

from tropism.errors import (
    DivergedError,
    MissingFileError,
    ObservationError,
    ProcessError,
    ServerError,
    StateError,
    StepConflictError,
    UnknownEnvironmentError,
    ValidationError,
    shorten,
)

# The HTTP status of each code: OpenEnv's codes first, then our own.
STATUS = {
    "INVALID_JSON": 422,
    "UNKNOWN_TYPE": 422,
    "VALIDATION_ERROR": 422,
    "EXECUTION_ERROR": 500,
    "CAPACITY_REACHED": 503,
    "FACTORY_ERROR": 500,
    "SESSION_ERROR": 404,
    "STATE_ERROR": 409,
    "DIVERGED": 409,
    "STEP_CONFLICT": 409,
    "TIMEOUT": 504,
    "BAD_REQUEST": 400,
    "TOO_LARGE": 413,
    "HEADERS_TOO_LARGE": 431,
    "TOO_SLOW": 408,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "QUOTA_REACHED": 429,
    "STOPPING": 503,
    "NOT_RECORDED": 503,
    "JOURNAL_ERROR": 503,
}

CODES: dict[type[Exception], str] = {
    UnknownEnvironmentError: "NOT_FOUND",
    MissingFileError: "NOT_FOUND",
    ValidationError: "VALIDATION_ERROR",
    StateError: "STATE_ERROR",
    DivergedError: "DIVERGED",
}

log = logging.getLogger("tropism.serve")


class EnvironmentExitError(Exception):
    """An environment raised its cause, which is not an ordinary exception: SystemExit, for example."""


def to_server_error(error: Exception, **context: Any) -> ServerError:
    """Convert an error to a `ServerError`; an unexpected one is logged with an id that the reply contains."""
    if isinstance(error, ServerError):
        return error
    for kind, code in CODES.items():
        if isinstance(error, kind) and not isinstance(error, ObservationError):  # the environment's fault
            return ServerError(code, str(error))
    id, cause = secrets.token_hex(8), error.__cause__ if isinstance(error, EnvironmentExitError) else error
    log.error("the environment raised", exc_info=error, extra={"error_id": id, **context})
    what = str(error) if isinstance(error, ProcessError) else f"the environment raised {type(cause).__name__}"
    return ServerError("EXECUTION_ERROR", f"{what}; see the server's log, error_id {id}", id)


def error_json(error: ServerError) -> dict[str, Any]:
    """The JSON form of an error."""
    data: dict[str, Any] = {"message": error.message, "code": error.code}
    if isinstance(error, StepConflictError):
        data["step_count"] = error.step_count
    return data if error.id is None else data | {"id": error.id}


def late_step_error() -> StateError:
    return StateError("step", "late", "a step in time", "the step took too long and was not applied")


def unknown_session_error(id: str, environment: str | None) -> ServerError:
    """The error for an id that is not a session of this caller in `environment`, or, if None, in any."""
    if environment is None:
        return ServerError("SESSION_ERROR", f"no session {shorten(id)} is yours; reset opens one")
    instead = "to open a new one, reset and leave out the header X-Session-Id, or the session_id of a socket"
    return ServerError("SESSION_ERROR", f"no session {shorten(id)} of {environment} is yours; {instead}")
