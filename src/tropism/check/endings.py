"""Runs random episodes to their ends: their lengths, and the first step whose flags or reward are wrong."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tropism.check.compare import format_value
from tropism.check.context import POOL, CheckContext, StepRecord, compile_quickly, stack
from tropism.check.law_error import attempt
from tropism.core.environment import flags
from tropism.core.episode import seed_words, step_key

BATCH = 64  # episodes of a pure environment, run at once
LONGEST_EPISODE = 10_000  # steps
STRIDE = 61  # offset between the actions of two episodes in the pool
HOST_EPISODES = 8


class Endings(NamedTuple):
    """`lengths` has the steps of each episode, 0 if it had not ended after `limit`; `faults` has the first step of
    each episode whose flags or reward are wrong, 0 if there is none."""

    lengths: list[int]
    faults: list[int]
    limit: int
    has_flags: bool

    def shortest_fault(self, context: CheckContext) -> tuple[int, list[Any]] | None:
        """The seed and actions of the shortest episode that ends in a fault."""
        faults = [(time, lane) for lane, time in enumerate(self.faults) if time]
        if not faults:
            return None
        time, lane = min(faults)
        return context.seed + lane, context.actions(context.seed, time, STRIDE * lane)


def explain_flags(record: StepRecord) -> str | None:
    """Why `done` is not `terminated | truncated`."""
    done = bool(record.done)
    terminated, truncated = (bool(flag) for flag in flags(record.done, record.info))
    if (terminated or truncated) == done:
        return None
    observed = f"terminated is {terminated}, truncated is {truncated}, but done is {done}"
    return f"{observed}; return done = terminated | truncated"


def explain_reward(record: StepRecord) -> str | None:
    return None if np.isfinite(record.reward) else f"reward is {format_value(record.reward)}, not a finite number"


def find_endings(context: CheckContext) -> Endings:
    """Run a batch of compiled episodes or, if that fails, a few step by step."""
    found: list[Endings] = []
    if context.compiles and attempt(lambda: found.append(_run_batch(context))) is None:
        return found[0]
    return _run_one_by_one(context)


def _run_batch(context: CheckContext) -> Endings:
    limit = context.num_steps if context.env.endless else max(LONGEST_EPISODE, context.num_steps)
    names: list[str] = []

    def run(words: Any, lane: Any, pool: Any) -> tuple[Any, Any]:
        def step(carry: Any) -> Any:
            time, state, _, fault = carry
            action = jax.tree.map(lambda leaf: leaf[(time + STRIDE * lane) % POOL], pool)
            time += 1
            _, state, reward, done, info = context.plain.step(step_key(words, time), state, action)
            names[:] = info
            terminated, truncated = flags(done, info)
            wrong = ((terminated | truncated) != done) | ~jnp.isfinite(reward)
            return time, state, done, jnp.where((fault == 0) & wrong, time, fault)

        first = jnp.int32(0), context.plain.reset(step_key(words, 0))[1], jnp.bool_(False), jnp.int32(0)
        time, _, done, fault = lax.while_loop(lambda carry: ~carry[2] & (carry[0] < limit), step, first)
        return jnp.where(done, time, 0), fault

    words = np.stack([seed_words(context.seed + lane) for lane in range(BATCH)])
    batch = compile_quickly(jax.vmap(run, (0, 0, None)), level=1)
    lengths, faults = batch(words, np.arange(BATCH, dtype=np.int32), stack(context.actions(context.seed, POOL)))
    return Endings(lengths.tolist(), faults.tolist(), limit, _has_flags(names))


def _run_one_by_one(context: CheckContext) -> Endings:
    """A few episodes, as long as there are steps left; plain calls of a pure environment are slow."""
    limit = steps = context.num_steps if context.pure or context.env.endless else 10 * context.num_steps
    lengths, faults, has_flags = list[int](), list[int](), False
    for lane in range(HOST_EPISODES):
        actions = context.actions(context.seed, steps, STRIDE * lane)
        records = list(context.run(context.fast, context.seed + lane, actions))[1:]
        wrong = [time for time, record in enumerate(records, 1) if explain_flags(record) or explain_reward(record)]
        has_flags |= any(_has_flags(record.info) for record in records)
        faults += wrong[:1] or [0]
        steps -= len(records)
        if not lane or records[-1].done:  # a later episode may be cut short
            lengths.append(len(records) if records[-1].done else 0)
        if not steps:
            break
    return Endings(lengths, faults, limit, has_flags)


def _has_flags(info: Any) -> bool:
    return "terminated" in info or "truncated" in info
