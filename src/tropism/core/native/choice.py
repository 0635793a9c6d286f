"""Chooses between native and XLA: native where it is verified to give XLA's bits."""

import logging
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from tropism.core.environment import Environment
from tropism.core.native import jit
from tropism.core.native.builder import Unsupported
from tropism.core.native.verdicts import Verdict, verdict_of
from tropism.core.spaces.space import check_option
from tropism.errors import ValidationError

log = logging.getLogger(__name__)

EngineName = Literal["auto", "native", "xla"]

NOT_INSTALLED = "llvmlite is not installed: pip install 'tropism[native]'"


class Choice(NamedTuple):
    """The native functions an environment runs on, and the reason if some are XLA's."""

    native: Any  # the native program, or None
    native_reset: bool
    reason: str

    def __str__(self) -> str:
        if self.native is None:
            return f"xla ({self.reason})"
        return "native" if self.native_reset else f"native, resets on xla ({self.reason})"


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


def choose(
    env: Environment, engine: EngineName, find: Callable[[], tuple[Any, str]], verify: Callable[[Any], Verdict]
) -> Choice:
    """The choice for this `engine`: `find` returns the native program or a reason, `verify` compares it with XLA's."""
    check_option("engine", engine, EngineName)
    if engine == "xla":
        return Choice(None, False, "requested")
    native, reason = find()
    if native is None and engine == "native":
        raise ValidationError("engine", engine, "auto or xla", f"{type(env).__name__} has no native engine: {reason}")
    if native is None or engine == "native":
        return Choice(native, native is not None and native.reset is not None, reason)
    verdict = verdict_of(native.digest, lambda: verify(native))
    if not verdict.step:
        return Choice(None, False, f"native steps differ: {verdict.reason}")
    if native.reset is None:
        return Choice(native, False, native.reset_reason)
    return Choice(native, verdict.reset, "" if verdict.reset else f"native resets differ: {verdict.reason}")
