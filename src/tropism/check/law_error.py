"""The error that the check of a law raises, and other exceptions with the user's source line."""

import traceback
from collections.abc import Callable
from types import FrameType

from jax import errors

from tropism.check.report import Status
from tropism.core.environment import Environment
from tropism.user_code import format_location, is_library

LONGEST_ERROR = 300  # characters
PLACES = ("default_params", "reset", "step", "observation_space", "action_space", "render", "describe", "parse", "info")
BRANCH = "Compiled code cannot branch in Python on a traced value: use jnp.where or jax.lax.cond."
NUMBER = "A traced value is not known before the compiled code runs: use jnp, not float(), int(), range() or NumPy."
TRACING_ERRORS = (
    errors.ConcretizationTypeError,
    errors.TracerArrayConversionError,
    errors.TracerIntegerConversionError,
    errors.NonConcreteBooleanIndexError,
)


class LawError(Exception):
    """Raised by the check of a law that does not hold: where, and what was observed."""

    def __init__(self, place: str, message: str, status: Status = "failed"):
        super().__init__(place, message, status)
        self.place, self.message = place, message
        self.status: Status = status


def attempt(check: Callable[[], None], place: str = "env") -> LawError | None:
    """The LawError that `check` raises; any other exception is turned into one."""
    try:
        check()
    except LawError as failure:
        return failure
    except Exception as error:  # noqa: BLE001  any exception of a user's environment belongs in the report
        return _explain_exception(error, place)
    return None


def _explain_exception(error: Exception, place: str) -> LawError:
    frames = list(traceback.walk_tb(error.__traceback__))
    methods = [(frame, line) for frame, line in frames if _is_method(frame)]
    # If a package that the user's code calls raises, the user's own line is more helpful.
    own = [(frame, line) for frame, line in frames if not is_library(frame.f_code.co_filename)]
    is_tracing = isinstance(error, TRACING_ERRORS)
    text = str(error).partition("\n")[0] if is_tracing else " ".join(str(error).split())
    lines = [f"{type(error).__name__}: {text if len(text) <= LONGEST_ERROR else f'{text[:LONGEST_ERROR]}…'}"]
    lines += [format_location(*at) for at in (own or methods)[-1:]]
    if is_tracing:
        lines.append(BRANCH if isinstance(error, errors.TracerBoolConversionError) else NUMBER)
    return LawError(methods[0][0].f_code.co_name if methods else place, "\n".join(lines))


def _is_method(frame: FrameType) -> bool:
    return frame.f_code.co_name in PLACES and isinstance(frame.f_locals.get("self"), Environment)
