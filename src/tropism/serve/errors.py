"""How a request is refused: one form for HTTP and sockets, never a traceback."""

import logging
import secrets
from typing import Any

from tropism.errors import (
    DivergedError,
    ObservationError,
    ProcessError,
    ServerError,
    StateError,
    UnknownEnvironmentError,
    ValidationError,
)

# The HTTP status of each code. The codes are OpenEnv's, and our own after them.
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
    "TIMEOUT": 504,
    "BAD_REQUEST": 400,
    "TOO_LARGE": 413,
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
    ValidationError: "VALIDATION_ERROR",
    StateError: "STATE_ERROR",
    DivergedError: "DIVERGED",
}

log = logging.getLogger("tropism.serve")


def refusal(error: Exception, **context: Any) -> ServerError:
    """The refusal that an error means; one nobody foresaw is logged under an id that the caller is told."""
    if isinstance(error, ServerError):
        return error
    for kind, code in CODES.items():
        if isinstance(error, kind) and not isinstance(error, ObservationError):  # which no caller could help
            return ServerError(code, str(error))
    id = secrets.token_hex(8)
    log.error("the environment raised", exc_info=error, extra={"error_id": id, **context})
    what = str(error) if isinstance(error, ProcessError) else f"the environment raised {type(error).__name__}"
    return ServerError("EXECUTION_ERROR", f"{what}; the server's log has it under {id}", id)


def data(error: ServerError) -> dict[str, Any]:
    """What the caller is told."""
    told = {"message": error.message, "code": error.code}
    return told if error.id is None else told | {"id": error.id}


def too_late() -> StateError:
    return StateError("step", "late", "one in time", "the step came too late and is not applied")
