"""Every error Tropism raises on purpose.

TropismError
├── ValidationError(ValueError)          a value from outside is wrong
│   ├── ObservationError                   an environment returned what it does not declare
│   └── UnknownEnvironmentError(KeyError)  no such environment id
├── StateError(RuntimeError)             the call does not fit the state the object is in
├── DivergedError(RuntimeError)          a replayed episode did not repeat itself
├── ProcessError(RuntimeError)           the process that an episode lived in ended, or cannot answer
├── ServerError(RuntimeError)            a server refuses a request, under a code
├── NonFiniteError(ArithmeticError)      a number in training became NaN or infinite
├── SandboxError(RuntimeError)           code cannot be run in isolation here, so it is not run
└── MissingExtraError(ImportError)       an optional dependency is not installed
"""

from importlib.util import find_spec

LONGEST_VALUE = 120


class TropismError(Exception):
    """Base of the tree; `name`, `value` and `expected` say what was wrong."""

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
    """A value that came from outside is not what was expected."""


class ObservationError(ValidationError):
    """What an environment returned is not what it declares: its mistake, not its caller's."""


class UnknownEnvironmentError(ValidationError, KeyError):
    """No environment is registered under this id."""


class StateError(TropismError, RuntimeError):
    """The call does not fit the lifecycle state; says which state and what to call instead."""


class DivergedError(TropismError, RuntimeError):
    """Replaying an episode gave something else than was recorded."""


class ProcessError(TropismError, RuntimeError):
    """The process of an episode ended, or something cannot be sent to it or back; the cause has its traceback."""


class ServerError(TropismError, RuntimeError):
    """A server's refusal; `code` is the one that travels, `id` finds it in the server's log."""

    def __init__(self, code: str, message: str, id: str | None = None):
        super().__init__("request", code, "a request that can be served", message)
        self.code = code
        self.id = id

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.message, self.id)


class NonFiniteError(TropismError, ArithmeticError):
    """Training met a NaN or an infinite number; says which quantity, at which step."""


class SandboxError(TropismError, RuntimeError):
    """No sandbox could be started, or one refused to confine itself: nothing was run."""


class ObservationWarning(UserWarning):
    """An environment returned an observation that is not in its space, during training."""


class MissingExtraError(TropismError, ImportError):
    """An optional dependency is needed for this; says which extra installs it."""


def require_extra(extra: str, purpose: str, *modules: str) -> None:
    """Raise MissingExtraError unless the modules that the extra installs can be imported."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        command = f'pip install "tropism[{extra}]"'
        raise MissingExtraError(missing[0], None, command, f"{purpose} needs {', '.join(missing)}: {command}")


def shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
