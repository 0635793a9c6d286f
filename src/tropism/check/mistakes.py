"""Recognises common mistakes: Gymnasium's spaces and order of values, unhashable fields."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import jax
import numpy as np

from tropism.check.compare import format_value, is_flag, layout
from tropism.check.law_error import LawError
from tropism.core import spaces
from tropism.core.arity import accepts
from tropism.core.environment import Environment
from tropism.core.spaces import Space

GYM = ("gym", "gymnasium")
RESET = "(obs, state)"
STEP = "(obs, state, reward, done, info)"
ARGUMENTS = {"reset": ("key", "params"), "step": ("key", "state", "action", "params")}
REMEDIES: tuple[tuple[tuple[type, ...], str], ...] = (
    ((list,), "make it a tuple"),
    ((set,), "make it a frozenset"),
    ((dict,), "make it a tuple of pairs, or a frozen dataclass"),
    ((np.ndarray, jax.Array), "keep an array in the params or in the state, or make it a tuple of numbers"),
)


def check_fields(env: Environment) -> None:
    """Every field can be hashed."""
    for field in fields(env):
        value = getattr(env, field.name)
        culprit = _find_unhashable(value)
        if culprit is not None:
            inside = "is" if culprit is value else "contains"
            remedy = next((advice for kinds, advice in REMEDIES if isinstance(culprit, kinds)), "give it a `__hash__`")
            kind = f"{type(culprit).__module__}.{type(culprit).__qualname__}".removeprefix("builtins.")
            message = (
                f"the field `{field.name}` {inside} {format_value(culprit)}, a {kind}, which cannot be hashed; {remedy}"
            )
            raise LawError("env", f"{message}. Fields are constants: equal environments share one compilation.")


def _find_unhashable(value: Any) -> Any:
    """The innermost unhashable object in `value`; None if it is hashable."""
    try:
        hash(value)
    except TypeError:
        items: tuple[Any, ...] = value if isinstance(value, tuple) else ()
        inner = [_find_unhashable(item) for item in items]
        return next((item for item in inner if item is not None), value)
    return None


def check_signatures(env: Environment) -> None:
    """`reset` and `step` can be called with the arguments of the interface."""
    for name, arguments in ARGUMENTS.items():
        method: Callable[..., Any] = getattr(env, name)
        if not accepts(method, len(arguments)):
            given = inspect.signature(method).parameters
            shown, expected = (", ".join(("self", *names)) for names in (given, arguments))
            raise LawError(name, f"is defined as {name}({shown}); define it as {name}({expected})")


def check_space_type(name: str, space: Any) -> None:
    """A space is ours, not that of another library such as Gymnasium."""
    if isinstance(space, Space):
        return
    kind = type(space)
    if kind.__module__.partition(".")[0] not in GYM:
        raise LawError(name, f"returned {format_value(space)} ({kind.__name__}), not a Space")
    same = f"tropism.{kind.__name__}" if hasattr(spaces, kind.__name__) else "a space of tropism"
    advice = f"return {same} in its place, or convert it with tropism.gym.from_gymnasium_space"
    raise LawError(name, f"returned {format_value(space)}, a space of {kind.__module__.partition('.')[0]}; {advice}")


def check_reset(result: Any) -> None:
    """The result of `reset` is `(obs, state)`."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise LawError("reset", f"returned {layout(result)}, not {RESET}")
    if isinstance(result[1], dict):
        advice = f"return {RESET}, and define `info(state, params)`"
        raise LawError("reset", f"returned {layout(result)}: Gymnasium's (obs, info); {advice}")


def check_step(result: Any) -> None:
    """The result of `step` is `(obs, state, reward, done, info)`."""
    advice = _explain_order(result) if isinstance(result, tuple) else None
    if advice is not None:
        raise LawError("step", f"returned {layout(result)}: {advice}")
    if not isinstance(result, tuple) or len(result) != 5 or not isinstance(result[4], dict):
        raise LawError("step", f"returned {layout(result)}, not {STEP} with a dict as info")


def _explain_order(result: tuple[Any, ...]) -> str | None:
    """Which known mistake the result looks like: Gymnasium's order, or a missing info."""
    are_flags = [is_flag(value) for value in result]
    has_info = bool(result) and isinstance(result[-1], dict)
    match are_flags:
        case [_, _, True, False] if has_info:
            return f"the old Gym API's (obs, reward, done, info); return {STEP} with the next state second"
        case [_, _, True, True, False] if has_info:
            advice = "with done = terminated | truncated, and both flags in info"
            return f"Gymnasium's (obs, reward, terminated, truncated, info); return {STEP} {advice}"
        case [_, _, _, True]:
            return f"the info is missing; return {STEP}, where info may be {{}}"
        case _:
            return None
