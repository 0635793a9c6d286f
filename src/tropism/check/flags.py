"""Laws of the end of an episode: flags, termination."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import GetAttrKey

from tropism.check.compare import format_value, structure_of
from tropism.check.context import CheckContext, StepRecord
from tropism.check.endings import Endings, explain_flags, find_endings, is_endless
from tropism.check.finding import Finding
from tropism.core.environment import flags
from tropism.core.spaces.space import is_integer

LATE = 10**6  # steps, beyond any time limit
LIMIT = 'return done = terminated | truncated, and {"terminated": terminated, "truncated": truncated} in info'
FINITE_HORIZON = 'If the task itself ends there, return {"terminated": done, "truncated": False}.'


def check_flags(context: CheckContext) -> Finding | None:
    return (
        context.find_smallest(lambda seed, actions: _check_types(context, seed, actions))
        or context.compute_once(find_endings).disagreement
        or _check_late_flags(context)
        or _find_time_limit(context, context.compute_once(find_endings))
    )


def _check_types(context: CheckContext, seed: int, actions: list[Any]) -> Finding | None:
    """Plain calls, since compilation would turn every number into an array."""
    records = list(context.cached_run(context.plain, seed, actions))
    for time, record in enumerate(records[1:], 1):
        message = _explain_outcome(context, record) or _explain_info(context, record.info, records[1].info)
        if message:
            return Finding("step", f"step {time}: {message}")
    return None


def _explain_outcome(context: CheckContext, record: StepRecord) -> str | None:
    reward, done = record.reward, record.done
    real = isinstance(reward, float) or (context.pure and getattr(reward, "dtype", None) == jnp.float32)
    real = real or (not context.pure and isinstance(reward, int | np.number))
    if not real or np.shape(reward) != ():
        return f"reward is {_format_typed(reward)}, not a float32 scalar"
    if not _is_flag(done):
        return f"done is {_format_typed(done)}, not a bool scalar"
    terminated, truncated = flags(done, record.info)
    if not (_is_flag(terminated) and _is_flag(truncated)):
        return f"terminated is {_format_typed(terminated)} and truncated {_format_typed(truncated)}, not bool scalars"
    return explain_flags(terminated, truncated, done)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or (getattr(value, "dtype", None) == np.bool_ and np.shape(value) == ())


def _format_typed(value: Any) -> str:
    shape = f" of shape {np.shape(value)}" if np.shape(value) else ""
    return f"{format_value(value)} ({getattr(value, 'dtype', type(value).__name__)}{shape})"


def _explain_info(context: CheckContext, info: Any, first: Any) -> str | None:
    same = structure_of(info) == structure_of(first) if context.pure else set(info) == set(first)
    return None if same else f"info is {format_value(info)}, unlike that of step 1, {format_value(first)}"


def _check_late_flags(context: CheckContext) -> Finding | None:
    """Set the clock to reach time limits that random episodes do not."""
    for time, done, info in _late_steps(context):
        message = explain_flags(*flags(done, info), done)
        if message:
            return Finding("step", f"a step from state.time = {time}: {message}")
    return None


def _late_steps(context: CheckContext) -> Iterator[tuple[int, Any, Any]]:
    """`(time, done, info)` of a step whose state has its clock set to `time`: to each integer of the environment
    and its params, which may be a time limit, and to a step beyond all of them."""
    if not context.pure or context.fast is context.plain:
        return
    _, state = context.fast.reset(context.key(context.seed, 0))
    action = jax.tree.map(jnp.asarray, context.actions(context.seed, 1)[0])
    numbers = [*jax.tree.leaves(context.params), *(getattr(context.env, field.name) for field in fields(context.env))]
    limits = {int(number) for number in numbers if is_integer(number) and 1 < number < LATE}
    for time in sorted({limit - 1 for limit in limits} | {LATE}):
        *_, done, info = context.fast.step(context.key(context.seed, 1), _with_time(state, time), action)
        yield time, done, info


def _with_time(state: Any, time: int) -> Any:
    """The state with its clock set, including the clocks of nested states."""

    def set_clock(path: Any, leaf: Any) -> Any:
        is_clock = path[-1:] == (GetAttrKey("time"),) and jnp.shape(leaf) == () and leaf.dtype == jnp.int32
        return jnp.int32(time) if is_clock else leaf

    return jax.tree_util.tree_map_with_path(set_clock, state)


def _find_time_limit(context: CheckContext, endings: Endings) -> Finding | None:
    """Without flags in info, an end that depends only on the clock is a time limit."""
    if endings.has_flags:
        return None
    lengths = set(endings.lengths)
    if len(lengths) == 1 and max(lengths) > 1:
        observed = f"all {len(endings.lengths)} random episodes ended at step {max(lengths)}"
    elif any(done for _, done, _ in _late_steps(context)) and endings.lengths[0] != 1:
        observed = "an episode ends when state.time is large"
    else:
        return None
    message = f"{observed}, and info has no flags: this looks like a time limit, but counts as termination; {LIMIT}. "
    return Finding("step", message + FINITE_HORIZON, "warned")


def check_termination(context: CheckContext) -> Finding | None:
    if is_endless(context.env):
        return Finding("step", "endless = True", "skipped")
    endings = context.compute_once(find_endings)
    if any(endings.lengths):
        return None
    count = len(endings.lengths)
    observed = f"`done` was never True in {count} random episodes of up to {endings.limit} steps (seed {context.seed})"
    limit = "Return done = terminated | truncated, such as with truncated = state.time >= params.max_steps"
    endless = "if episodes never end by design, declare `endless: ClassVar[bool] = True` in the class"
    return Finding("step", f"{observed}. {limit}; {endless}.")
