"""Runs random episodes to their ends: their lengths, and an episode whose flags or rewards are wrong."""

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tropism.check.compare import format_value
from tropism.check.context import POOL, CheckContext, StepRecord, compile_quickly
from tropism.check.law import NUM_SEEDS, EpisodeCheck, example
from tropism.check.law_error import LawError, attempt
from tropism.core.environment import flags
from tropism.core.episode import seed_words, step_key

BATCH = 64  # episodes of a pure environment, run at once
LONGEST_EPISODE = 10_000  # steps
EXTRA_STEPS = 1_000  # for the other episodes of a batch after the first has ended
STRIDE = 61  # offset between the actions of two episodes in the pool
LONG_STEP = 5e-4  # seconds
MORE_EPISODES = 6  # of a host environment whose first ones end at the same step


class Endings(NamedTuple):
    """`lengths` has the steps of each episode, 0 if it had not ended after `limit`; `faults` has the first step of
    each episode whose flags or reward are wrong, 0 if there is none."""

    lengths: list[int]
    faults: list[int]
    limit: int
    has_flags: bool


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


def check_records(records: Iterable[StepRecord], explain: Callable[[StepRecord], str | None]) -> None:
    """Raise a LawError for the first step of an episode for which there is an explanation."""
    for time, record in enumerate(records):
        message = explain(record) if time else None
        if message:
            raise LawError("step", f"step {time}: {message}")


def check_fault(context: CheckContext, check: EpisodeCheck) -> None:
    """Check the shortest random episode with a fault, up to the faulty step."""
    faults = context.compute_once(find_endings).faults
    if not any(faults):
        return
    time, lane = min((time, lane) for lane, time in enumerate(faults) if time)
    seed, actions = context.seed + lane, [_action(context, lane, number) for number in range(time)]
    with example(context, seed, actions):
        check(context, seed, actions)


def find_endings(context: CheckContext) -> Endings:
    """Run a batch of compiled episodes or, if that fails, a few step by step."""
    if context.pure and context.fast is not context.plain:
        found: list[Endings] = []
        if attempt(lambda: found.append(_find_in_batch(context))) is None:
            return found[0]
    return _find_step_by_step(context)


def _action(context: CheckContext, lane: int, number: int) -> Any:
    return context.action(context.seed, number + STRIDE * lane)


class _BatchState(NamedTuple):
    """The state of a batch of episodes; 0 stands for a step that has not occurred."""

    time: Any
    state: Any
    lengths: Any
    faults: Any


def _find_in_batch(context: CheckContext) -> Endings:
    limit = context.num_steps if context.env.endless else max(LONGEST_EPISODE, context.num_steps)
    reset, step = jax.vmap(context.plain.reset), jax.vmap(context.plain.step)
    keys = jax.vmap(step_key, (0, None))
    lanes = np.arange(BATCH)
    names: list[str] = []

    def is_running(batch: _BatchState) -> Any:
        ended = batch.lengths > 0
        first = jnp.where(ended, batch.lengths, limit).min()
        return (batch.time < limit) & (batch.time < first + EXTRA_STEPS) & ~jnp.all(ended)

    def run(words: Any, pool: Any) -> tuple[Any, Any]:
        def advance(batch: _BatchState) -> _BatchState:
            actions = jax.tree.map(lambda leaf: leaf[(batch.time + STRIDE * lanes) % POOL], pool)
            time = batch.time + 1
            _, state, reward, done, info = step(keys(words, time), batch.state, actions)
            names[:] = info
            terminated, truncated = flags(done, info)
            running = batch.lengths == 0
            wrong = ((terminated | truncated) != done) | ~jnp.isfinite(reward)
            lengths = jnp.where(running & done, time, batch.lengths)
            faults = jnp.where(running & wrong & (batch.faults == 0), time, batch.faults)
            return _BatchState(time, state, lengths, faults)

        zeros = jnp.zeros(BATCH, jnp.int32)
        initial = _BatchState(jnp.int32(0), reset(keys(words, 0))[1], zeros, zeros)
        ended = lax.while_loop(is_running, advance, initial)
        return ended.lengths, ended.faults

    words = np.stack([seed_words(context.seed + lane) for lane in range(BATCH)])
    lengths, faults = compile_quickly(run, level=_level(context))(words, context.pool(context.seed))
    return Endings(lengths.tolist(), faults.tolist(), limit, _has_flags(names))


def _level(context: CheckContext) -> int:
    """The optimisation level: worth it only where a step is slow, since thousands are run."""
    _, state = context.fast.reset(context.key(context.seed, 0))
    key, action = context.key(context.seed, 1), jax.tree.map(jnp.asarray, context.action(context.seed, 0))
    started = perf_counter()
    jax.block_until_ready(context.fast.step(key, state, action))
    return int(perf_counter() - started > LONG_STEP)


def _find_step_by_step(context: CheckContext) -> Endings:
    """Only the first episode of a host environment may be long; plain calls of a pure one are too slow."""
    short = context.num_steps
    limit = short if context.pure or context.env.endless else 10 * short
    endings = Endings([], [], limit, False)
    for lane in range(NUM_SEEDS):
        endings = _run_lane(context, endings, short if lane else limit)
    if not endings.has_flags and len(set(endings.lengths)) == 1 and endings.lengths[0] > 1:
        for _ in range(MORE_EPISODES):
            endings = _run_lane(context, endings, endings.lengths[0])
    return endings


def _run_lane(context: CheckContext, endings: Endings, limit: int) -> Endings:
    """The endings with those of one more episode."""
    lane = len(endings.lengths)
    actions = (_action(context, lane, number) for number in range(limit))
    records = list(context.run(context.fast, context.seed + lane, actions))[1:]
    wrong = [bool(explain_flags(record) or explain_reward(record)) for record in records]
    return endings._replace(
        lengths=[*endings.lengths, len(records) if records[-1].done else 0],
        faults=[*endings.faults, 1 + wrong.index(True) if any(wrong) else 0],
        has_flags=endings.has_flags or any(_has_flags(record.info) for record in records),
    )


def _has_flags(info: Any) -> bool:
    return "terminated" in info or "truncated" in info
