"""The exceptions that Tropism raises.

TropismError
├── ValidationError(ValueError)          a value from a caller is invalid
│   ├── ActionError                        an environment rejected an action, and has not changed
│   ├── MissingFileError                   a workspace has no such file
│   ├── ObservationError                   an environment returned a value that it does not declare
│   └── UnknownEnvironmentError(KeyError)  no such environment id
├── StateError(RuntimeError)             the call is not allowed in the object's state
├── DivergedError(RuntimeError)          a replayed episode differs from the recorded one
├── ProcessError(RuntimeError)           the process of an episode ended, or cannot reply
├── ServerError(RuntimeError)            a server rejected a request, with a code
│   └── StepConflictError                  the episode is not where the caller expects it
├── NonFiniteError(ArithmeticError)      a number in training became NaN or infinite
├── SandboxError(RuntimeError)           no sandbox is available, so the code is not run
└── MissingExtraError(ImportError)       an optional dependency is not installed
"""

from importlib.util import find_spec
from itertools import islice

LONGEST_VALUE = 120


class TropismError(Exception):
    """Base class; `name`, `value` and `expected` describe what was wrong."""

    def __init__(self, name: str, value: object, expected: str, message: str | None = None):
        self.name = name
        self.value = value
        self.expected = expected
        self.message = message or f"{name} is {shorten(value)}; expected {expected}"
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.name, self.value, self.expected, self.message)


class ValidationError(TropismError, ValueError):
    """A value from a caller is not what was expected."""


class ActionError(ValidationError):
    """An environment rejected an action of its space, before it changed anything."""


class ObservationError(ValidationError):
    """An environment returned a value that it does not declare: a fault of the environment, not of the caller."""


class MissingFileError(ValidationError):
    """The workspace of an episode has no file with this path."""


class UnknownEnvironmentError(ValidationError, KeyError):
    """No environment is registered under this id."""


class StateError(TropismError, RuntimeError):
    """The call is not allowed in this lifecycle state; the message has the state and what to call instead."""


class DivergedError(TropismError, RuntimeError):
    """A replayed episode differs from the recorded one."""


class ProcessError(TropismError, RuntimeError):
    """The process of an episode ended, or a value cannot be sent to or from it; the cause has its traceback."""


class ServerError(TropismError, RuntimeError):
    """A server rejected a request; `code` is that of the wire format, `id` that of the entry in the server's log."""

    def __init__(self, code: str, message: str, id: str | None = None):
        super().__init__("request", code, "a request that can be served", message)
        self.code = code
        self.id = id

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.message, self.id)


class StepConflictError(ServerError):
    """A step was not applied, because the episode, which is at `step_count`, is not where the caller expects it."""

    def __init__(self, message: str, step_count: int):
        super().__init__("STEP_CONFLICT", message)
        self.step_count = step_count

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.step_count)


class NonFiniteError(TropismError, ArithmeticError):
    """A number in training became NaN or infinite; the message names the quantity and the step."""


class SandboxError(TropismError, RuntimeError):
    """No sandbox could be started, or it could not confine itself; nothing was run."""


class ObservationWarning(UserWarning):
    """During training, an environment returned an observation outside its space."""


class MissingExtraError(TropismError, ImportError):
    """An optional dependency is missing; the message names the extra that installs it."""


def require_extra(extra: str, purpose: str, *modules: str) -> None:
    """Raise MissingExtraError unless the modules that the extra installs can be imported."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        command = f'pip install "tropism[{extra}]"'
        raise MissingExtraError(missing[0], None, command, f"{purpose} needs {', '.join(missing)}: {command}")


def shorten(value: object) -> str:
    text = repr(_head(value, [LONGEST_VALUE]))
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _head(value: object, budget: list[int]) -> object:
    """As much of a value from a caller as a message shows: the text of all of it may take seconds to make."""
    budget[0] -= 1
    if type(value) is str:
        return value[: LONGEST_VALUE + 1]
    if budget[0] <= 0:
        return value if isinstance(value, int | float | bool | None) else ...
    if type(value) is list:
        return [_head(item, budget) for item in value[: budget[0]]]
    if type(value) is dict:
        return {name: _head(item, budget) for name, item in islice(value.items(), budget[0])}
    return value
