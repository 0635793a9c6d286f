"""Chooses the engine of a pure environment: native where it is verified to give XLA's bits, else XLA."""

import logging
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

from tropism.core.compiled.program import program_of
from tropism.core.environment import Environment
from tropism.core.native import jit
from tropism.core.native.builder import Unsupported
from tropism.core.native.program import NativeProgram
from tropism.core.native.verdicts import verdict_of
from tropism.core.native.verification import verify
from tropism.errors import ValidationError

log = logging.getLogger(__name__)

EngineName = Literal["auto", "native", "xla"]

NOT_INSTALLED = "llvmlite is not installed: pip install 'tropism[native]'"


class Choice(NamedTuple):
    """The native functions an environment runs on, and the reason if some are XLA's."""

    native: NativeProgram | None
    native_reset: bool
    reason: str

    def __str__(self) -> str:
        if self.native is None:
            return f"xla ({self.reason})"
        return "native" if self.native_reset else f"native, resets on xla ({self.reason})"


def check_engine(engine: Any) -> None:
    if engine not in get_args(EngineName):
        raise ValidationError("engine", engine, f"one of {', '.join(get_args(EngineName))}")


def choose_engine(env: Environment, params: Any, engine: EngineName = "auto") -> Choice:
    """The engine that a session of this environment gets."""
    check_engine(engine)
    if engine == "xla":
        return Choice(None, False, "requested")
    program = program_of(env, params)
    if program.native_form is None:
        program.native_form = compile_natively(env, lambda: NativeProgram(program, env.action_space(params)))
    native, reason = program.native_form
    if native is None or engine == "native":
        require_native(env, engine, native, reason)
        return Choice(native, native is not None and native.reset is not None, reason)
    verdict = verdict_of(native.digest, lambda: verify(native, params))
    if not verdict.step:
        return Choice(None, False, f"native steps differ: {verdict.reason}")
    if native.reset is None:
        return Choice(native, False, native.reset_reason)
    return Choice(native, verdict.reset, "" if verdict.reset else f"native resets differ: {verdict.reason}")


def compile_natively(env: Environment, build: Callable[[], Any]) -> tuple[Any, str]:
    """A native program, or None; and the reason why it, or a part of it, could not be compiled."""
    if not jit.available():
        return None, NOT_INSTALLED
    try:
        native = build()
    except Unsupported as error:
        return None, str(error)
    except Exception as error:  # whatever fails in an optional compiler, the environment still runs on XLA
        log.exception("%s could not be compiled natively", type(env).__name__)
        return None, f"{type(error).__name__}: {error}"
    return native, native.reset_reason


def require_native(env: Environment, engine: EngineName, native: Any, reason: str) -> None:
    if native is None and engine == "native":
        raise ValidationError("engine", engine, "auto or xla", f"{type(env).__name__} has no native engine: {reason}")
