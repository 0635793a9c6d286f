"""The law interface: it recognises common mistakes, such as Gymnasium's spaces and order of values."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tropism.check.compare import format_value, is_flag, layout
from tropism.check.context import CheckContext
from tropism.check.law import example, law
from tropism.check.law_error import LawError
from tropism.core import spaces
from tropism.core.arity import accepts
from tropism.core.environment import Environment, EnvState
from tropism.core.params import EnvParams
from tropism.core.spaces import Space

GYM = ("gym", "gymnasium")
RESET = "(obs, state)"
STEP = "(obs, state, reward, done, info)"
ARGUMENTS = {"reset": ("key", "params"), "step": ("key", "state", "action", "params")}
REMEDIES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (list, "make it a tuple"),
    (set, "make it a frozenset"),
    (dict, "make it a tuple of pairs, or a frozen dataclass"),
    ((np.ndarray, jax.Array), "keep an array in the params or in the state, or make it a tuple of numbers"),
    (object, "give it a `__hash__`"),
)


@law("interface", "the methods return the declared types, and copies of the environment are equal")
def check_interface(context: CheckContext) -> None:
    env = context.env
    if not isinstance(env, Environment):
        raise LawError("env", f"{format_value(env)} is not an Environment; make(id) returns (env, params)")
    _check_fields(env)
    _check_signatures(env)
    twin = copy.deepcopy(env)
    if hash(env) != hash(copy.copy(env)) or env != twin or hash(env) != hash(twin):
        raise LawError("env", f"a copy of {format_value(env)} is not equal to it, or hashes differently")
    for name, params in (("default_params()", env.default_params()), ("params", context.params)):
        if not isinstance(params, EnvParams):
            raise LawError("default_params", f"{name} is {format_value(params)}, not an EnvParams")
    _check_space_type("observation_space", context.observation_space)
    _check_space_type("action_space", context.action_space)
    _check_calls(context)


def _check_fields(env: Environment) -> None:
    """Every field can be hashed."""
    for field in fields(env):
        value = getattr(env, field.name)
        culprit = _find_unhashable(value)
        if culprit is not None:
            inside = "is" if culprit is value else "contains"
            remedy = next(advice for kinds, advice in REMEDIES if isinstance(culprit, kinds))
            kind = f"{type(culprit).__module__}.{type(culprit).__qualname__}".removeprefix("builtins.")
            observed = f"the field `{field.name}` {inside} {format_value(culprit)}, a {kind}, which cannot be hashed"
            reason = "Fields are constants: equal environments share one compilation."
            raise LawError("env", f"{observed}; {remedy}. {reason}")


def _find_unhashable(value: Any) -> Any:
    """The innermost unhashable object in `value`; None if it is hashable."""
    try:
        hash(value)
    except TypeError:
        items: tuple[Any, ...] = value if isinstance(value, tuple) else ()
        inner = [_find_unhashable(item) for item in items]
        return next((item for item in inner if item is not None), value)
    return None


def _check_signatures(env: Environment) -> None:
    """`reset` and `step` can be called with the arguments of the interface."""
    for name, arguments in ARGUMENTS.items():
        method: Callable[..., Any] = getattr(env, name)
        if not accepts(method, len(arguments)):
            given = inspect.signature(method).parameters
            shown, expected = (", ".join(("self", *names)) for names in (given, arguments))
            raise LawError(name, f"is defined as {name}({shown}); define it as {name}({expected})")


def _check_space_type(name: str, space: Any) -> None:
    """A space is ours, not that of another library such as Gymnasium."""
    if isinstance(space, Space):
        return
    kind, library = type(space).__name__, type(space).__module__.partition(".")[0]
    if library not in GYM:
        raise LawError(name, f"returned {format_value(space)} ({kind}), not a Space")
    same = f"tropism.{kind}" if hasattr(spaces, kind) else "a space of tropism"
    advice = f"return {same} in its place, or convert it with tropism.gym.from_gymnasium_space"
    raise LawError(name, f"returned {format_value(space)}, a space of {library}; {advice}")


def _check_calls(context: CheckContext) -> None:
    """The results of a reset and a few steps; the state of a pure environment counts them."""
    seed, actions = context.seed, context.actions(context.seed, 3)
    result: Any = ()
    for time in range(len(actions) + 1):
        name, key = "step" if time else "reset", context.key(seed, time)
        with example(context, seed, actions[:time]):
            result = context.plain.step(key, result[1], actions[time - 1]) if time else context.plain.reset(key)
            mistake = _explain_step(result) if time else _explain_reset(result)
            if mistake:
                raise LawError(name, f"returned {layout(result)}{mistake}")
            if context.pure:
                _check_state(name, result[1], time)
        if time and np.any(result[3]):
            break


def _explain_reset(result: Any) -> str | None:
    if not isinstance(result, tuple) or len(result) != 2:
        return f", not {RESET}"
    if isinstance(result[1], dict):
        return f": Gymnasium's (obs, info); return {RESET}, and define `info(state, params)`"
    return None


def _explain_step(result: Any) -> str | None:
    """Gymnasium's order, a missing info, or any other form."""
    values: tuple[Any, ...] = result if isinstance(result, tuple) else ()
    has_info = bool(values) and isinstance(values[-1], dict)
    match [is_flag(value) for value in values]:
        case [_, _, True, False] if has_info:
            return f": the old Gym API's (obs, reward, done, info); return {STEP} with the next state second"
        case [_, _, True, True, False] if has_info:
            advice = "with done = terminated | truncated, and both flags in info"
            return f": Gymnasium's (obs, reward, terminated, truncated, info); return {STEP} {advice}"
        case [_, _, _, True]:
            return f": the info is missing; return {STEP}, where info may be {{}}"
        case [_, _, _, _, _] if has_info:
            return None
        case _:
            return f", not {STEP} with a dict as info"


def _check_state(place: str, state: Any, expected: int) -> None:
    """The state is an EnvState, and `state.time` counts the steps."""
    if not isinstance(state, EnvState):
        advice = "make it a subclass of EnvState, which counts `time`"
        raise LawError(place, f"the state is {layout(state)}, not an EnvState; {advice}")
    time = jnp.asarray(state.time)
    if time.dtype != jnp.int32 or time.shape != () or int(time) != expected:
        observed = f"state.time is {format_value(time)} ({time.dtype}, shape {time.shape})"
        raise LawError(place, f"{observed}, not {expected} (int32, shape ())")
