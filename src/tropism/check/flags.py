"""The laws of endings: flags, termination."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import GetAttrKey

from tropism.check.compare import kind, spell
from tropism.check.context import Moment, Subject
from tropism.check.endings import Endings, explain_flags, find_endings, is_endless
from tropism.check.finding import Finding
from tropism.core.environment import flags
from tropism.core.spaces.space import is_integer

LATE = 10**6  # steps, beyond any time limit
LIMIT = 'return done = terminated | truncated, and {"terminated": terminated, "truncated": truncated} in info'
FINITE_HORIZON = 'If the task itself ends there, return {"terminated": done, "truncated": False}.'


def check_flags(subject: Subject) -> Finding | None:
    return (
        subject.smallest(lambda seed, actions: _check_types(subject, seed, actions))
        or subject.once(find_endings).disagreement
        or _check_late_flags(subject)
        or _look_for_limit(subject, subject.once(find_endings))
    )


def _check_types(subject: Subject, seed: int, actions: list[Any]) -> Finding | None:
    """Of plain calls: a compilation would turn every number into an array."""
    moments = list(subject.recorded(subject.plain, seed, actions))
    for time, moment in enumerate(moments[1:], 1):
        message = _explain_outcome(subject, moment) or _explain_info(subject, moment.info, moments[1].info)
        if message:
            return Finding("step", f"step {time}: {message}")
    return None


def _explain_outcome(subject: Subject, moment: Moment) -> str | None:
    reward, done = moment.reward, moment.done
    real = isinstance(reward, float) or (subject.traced and getattr(reward, "dtype", None) == jnp.float32)
    real = real or (not subject.traced and isinstance(reward, int | np.number))
    if not real or np.shape(reward) != ():
        return f"reward is {_typed(reward)}, not a float32 scalar"
    if not _is_flag(done):
        return f"done is {_typed(done)}, not a bool scalar"
    terminated, truncated = flags(done, moment.info)
    if not (_is_flag(terminated) and _is_flag(truncated)):
        return f"terminated is {_typed(terminated)} and truncated {_typed(truncated)}, not bool scalars"
    return explain_flags(terminated, truncated, done)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or (getattr(value, "dtype", None) == np.bool_ and np.shape(value) == ())


def _typed(value: Any) -> str:
    shape = f" of shape {np.shape(value)}" if np.shape(value) else ""
    return f"{spell(value)} ({getattr(value, 'dtype', type(value).__name__)}{shape})"


def _explain_info(subject: Subject, info: Any, first: Any) -> str | None:
    same = kind(info) == kind(first) if subject.traced else set(info) == set(first)
    return None if same else f"info is {spell(info)}, unlike that of step 1, {spell(first)}"


def _check_late_flags(subject: Subject) -> Finding | None:
    """A time limit that random episodes do not reach is reached by setting the clock."""
    for time, done, info in _late_steps(subject):
        message = explain_flags(*flags(done, info), done)
        if message:
            return Finding("step", f"a step from state.time = {time}: {message}")
    return None


def _late_steps(subject: Subject) -> Iterator[tuple[int, Any, Any]]:
    """`(time, done, info)` of the first step of an episode whose clock was set to `time`: to each whole number of
    the environment and its params, which may be a time limit, and beyond all of them."""
    if not subject.traced or subject.fast is subject.plain:
        return
    _, state = subject.fast.reset(subject.key(subject.seed, 0))
    action = jax.tree.map(jnp.asarray, subject.actions(subject.seed, 1)[0])
    numbers = [*jax.tree.leaves(subject.params), *(getattr(subject.env, field.name) for field in fields(subject.env))]
    limits = {int(number) for number in numbers if is_integer(number) and 1 < number < LATE}
    for time in sorted({limit - 1 for limit in limits} | {LATE}):
        *_, done, info = subject.fast.step(subject.key(subject.seed, 1), _with_time(state, time), action)
        yield time, done, info


def _with_time(state: Any, time: int) -> Any:
    """The state with its clock set, also that of every state inside it."""

    def set_clock(path: Any, leaf: Any) -> Any:
        is_clock = path[-1:] == (GetAttrKey("time"),) and jnp.shape(leaf) == () and leaf.dtype == jnp.int32
        return jnp.int32(time) if is_clock else leaf

    return jax.tree_util.tree_map_with_path(set_clock, state)


def _look_for_limit(subject: Subject, endings: Endings) -> Finding | None:
    """Where info has no flags, an end that depends on the clock alone is a time limit."""
    if endings.has_flags:
        return None
    lengths = set(endings.lengths)
    if len(lengths) == 1 and max(lengths) > 1:
        seen = f"all {len(endings.lengths)} random episodes ended at step {max(lengths)}"
    elif any(done for _, done, _ in _late_steps(subject)) and endings.lengths[0] != 1:
        seen = "an episode ends when state.time is large"
    else:
        return None
    message = f"{seen}, and info has no flags: this looks like a time limit, but counts as termination; {LIMIT}. "
    return Finding("step", message + FINITE_HORIZON, "warned")


def check_termination(subject: Subject) -> Finding | None:
    if is_endless(subject.env):
        return Finding("step", "endless = True", "skipped")
    endings = subject.once(find_endings)
    if any(endings.lengths):
        return None
    count = len(endings.lengths)
    seen = f"`done` was never True in {count} random episodes of up to {endings.limit} steps (seed {subject.seed})"
    limit = "Return done = terminated | truncated, such as with truncated = state.time >= params.max_steps"
    endless = "if episodes are meant to go on for ever, declare `endless: ClassVar[bool] = True` in the class"
    return Finding("step", f"{seen}. {limit}; {endless}.")
