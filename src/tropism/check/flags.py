"""Laws of rewards and of the end of an episode: flags, finite-rewards, termination."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import GetAttrKey

from tropism.check.compare import format_value, is_flag, layout
from tropism.check.context import CheckContext, StepRecord
from tropism.check.endings import explain_flags, explain_reward, find_endings
from tropism.check.law import example, law, on_episodes
from tropism.check.law_error import LawError
from tropism.core.environment import flags
from tropism.core.spaces.space import is_integer

LATE = 10**6  # steps, beyond any time limit
LIMIT = 'return done = terminated | truncated, and {"terminated": terminated, "truncated": truncated} in info'
FINITE_HORIZON = 'If the task itself ends there, return {"terminated": done, "truncated": False}.'

Explain = Callable[[StepRecord], str | None]


@law("flags", "rewards, flags and info have the right types, and done is terminated or truncated", "interface")
def check_flags(context: CheckContext) -> None:
    _check_types(context)
    _check_fault(context, explain_flags)
    _check_late_flags(context)
    _check_time_limit(context)


@law("finite-rewards", "every reward is a finite number", "spaces", "flags")
def check_finite_rewards(context: CheckContext) -> None:
    _check_rewards(context)
    _check_fault(context, explain_reward)


@on_episodes()
def _check_types(context: CheckContext, seed: int, actions: list[Any]) -> None:
    """Plain calls, since compilation would turn every number into an array."""
    records = context.cached_run(context.plain, seed, actions)
    _check_records(records, lambda record: _explain_types(context.pure, record, records[1].info))


@on_episodes(None)
def _check_rewards(context: CheckContext, seed: int, actions: list[Any]) -> None:
    _check_records(context.cached_run(context.fast, seed, actions), explain_reward)


def _check_fault(context: CheckContext, explain: Explain) -> None:
    """Check the shortest random episode with a fault."""
    fault = context.compute_once(find_endings).shortest_fault(context)
    if fault is not None:
        with example(context, *fault):
            _check_records(context.run(context.fast, *fault), explain)


def _check_records(records: Iterable[StepRecord], explain: Explain) -> None:
    """Raise a LawError for the first step of an episode for which there is an explanation."""
    for time, record in enumerate(records):
        message = explain(record) if time else None
        if message:
            raise LawError("step", f"step {time}: {message}")


def _explain_types(pure: bool, record: StepRecord, first_info: Any) -> str | None:
    reward, done, info = record.reward, record.done, record.info
    is_float = isinstance(reward, float) or getattr(reward, "dtype", None) == jnp.float32
    is_real = is_float if pure else isinstance(reward, int | float | np.number)
    if not is_real or np.shape(reward) != ():
        return f"reward is {_format_typed(reward)}, not a float32 scalar"
    if not is_flag(done):
        return f"done is {_format_typed(done)}, not a bool scalar"
    terminated, truncated = flags(done, info)
    if not (is_flag(terminated) and is_flag(truncated)):
        return f"terminated is {_format_typed(terminated)} and truncated {_format_typed(truncated)}, not bool scalars"
    forms = [jax.tree.map(layout, each) if pure else set(each) for each in (info, first_info)]
    if forms[0] != forms[1]:
        return f"info is {format_value(info)}, unlike that of step 1, {format_value(first_info)}"
    return explain_flags(record)


def _format_typed(value: Any) -> str:
    return f"{format_value(value)} ({layout(value)})"


def _check_late_flags(context: CheckContext) -> None:
    """Set the clock to reach time limits that random episodes do not."""
    for time, record in _late_steps(context):
        message = explain_flags(record)
        if message:
            raise LawError("step", f"a step from state.time = {time}: {message}")


def _late_steps(context: CheckContext) -> Iterator[tuple[int, StepRecord]]:
    """Steps whose state has its clock set to a time: to each integer of the environment and its params, which may
    be a time limit, and to a step beyond all of them."""
    if not context.compiles:
        return
    _, state = context.fast.reset(context.key(context.seed, 0))
    key, action = context.key(context.seed, 1), context.to_input(context.actions(context.seed, 1)[0])
    numbers = [*jax.tree.leaves(context.params), *(getattr(context.env, field.name) for field in fields(context.env))]
    limits = {int(number) for number in numbers if is_integer(number) and 1 < number < LATE}
    for time in sorted({limit - 1 for limit in limits} | {LATE}):
        yield time, StepRecord(*context.fast.step(key, _with_time(state, time), action))


def _with_time(state: Any, time: int) -> Any:
    """The state with its clock set, including the clocks of nested states."""

    def set_clock(path: Any, leaf: Any) -> Any:
        is_clock = path[-1:] == (GetAttrKey("time"),) and jnp.shape(leaf) == () and leaf.dtype == jnp.int32
        return jnp.int32(time) if is_clock else leaf

    return jax.tree_util.tree_map_with_path(set_clock, state)


def _check_time_limit(context: CheckContext) -> None:
    """Without flags in info, an end that depends only on the clock is a time limit."""
    endings = context.compute_once(find_endings)
    if endings.has_flags:
        return
    count, lengths = len(endings.lengths), set(endings.lengths)
    if count > 1 and len(lengths) == 1 and max(lengths) > 1:
        observed = f"all {count} random episodes ended at step {max(lengths)}"
    elif any(record.done for _, record in _late_steps(context)) and endings.lengths[0] != 1:
        observed = "an episode ends when state.time is large"
    else:
        return
    message = f"{observed}, and info has no flags: this looks like a time limit, but counts as termination; {LIMIT}. "
    raise LawError("step", message + FINITE_HORIZON, "warned")


@law("termination", "at least one random episode ends", "params", needs=("ending",))
def check_termination(context: CheckContext) -> None:
    endings = context.compute_once(find_endings)
    if any(endings.lengths):
        return
    count = len(endings.lengths)
    observed = f"`done` was never True in {count} random episodes of up to {endings.limit} steps (seed {context.seed})"
    limit = "Return done = terminated | truncated, such as with truncated = state.time >= params.max_steps"
    endless = "if episodes never end by design, declare `endless: ClassVar[bool] = True` in the class"
    raise LawError("step", f"{observed}. {limit}; {endless}.")
