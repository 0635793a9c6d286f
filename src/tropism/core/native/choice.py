"""Chooses the engine of a pure environment: native where it is verified to give XLA's bits, else XLA."""

import logging
from typing import Any, Literal, NamedTuple, get_args

from tropism.core.compiled.program import Program, program_of
from tropism.core.environment import Environment
from tropism.core.native import jit
from tropism.core.native.builder import Unsupported
from tropism.core.native.program import NativeProgram
from tropism.core.native.verdicts import Verdict, load_verdict, save_verdict
from tropism.core.native.verification import verify
from tropism.core.spaces import Space
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
        program.native_form = _compile(program, env.action_space(params))
    native, reason = program.native_form
    if native is None and engine == "native":
        raise ValidationError("engine", engine, "auto or xla", f"{type(env).__name__} has no native engine: {reason}")
    if native is None or engine == "native":
        return Choice(native, native is not None and native.reset is not None, reason)
    verdict = _verdict(native, params)
    if not verdict.step:
        return Choice(None, False, f"native steps differ: {verdict.reason}")
    if native.reset is None:
        return Choice(native, False, native.reset_reason)
    return Choice(native, verdict.reset, "" if verdict.reset else f"native resets differ: {verdict.reason}")


def _compile(program: Program, space: Space) -> tuple[NativeProgram | None, str]:
    """The native form of a program; without one, the reason."""
    if not jit.available():
        return None, NOT_INSTALLED
    try:
        native = NativeProgram(program, space)
    except Unsupported as error:
        return None, str(error)
    except Exception as error:  # whatever fails in an optional compiler, the environment still runs on XLA
        log.exception("%s could not be compiled natively", type(program.env).__name__)
        return None, f"{type(error).__name__}: {error}"
    return native, native.reset_reason


_verdicts: dict[str, Verdict] = {}


def _verdict(native: NativeProgram, params: Any) -> Verdict:
    """From this process, from the disk, or by comparing 10,000 steps now."""
    digest = native.digest
    if digest not in _verdicts:
        verdict = load_verdict(digest)
        if verdict is None:
            verdict = verify(native, params)
            save_verdict(digest, verdict)
        _verdicts[digest] = verdict
    return _verdicts[digest]
