"""Runs random episodes to their ends: their lengths, and whether `done` agrees with the flags."""

from collections.abc import Iterator
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tropism.check.compare import format_value
from tropism.check.context import NUM_SEEDS, CheckContext, compile_quickly
from tropism.check.finding import Finding, attempt
from tropism.core.environment import Environment, flags
from tropism.core.episode import seed_words, step_key
from tropism.core.transforms.transform import Transform

BATCH = 64  # episodes of a pure environment, run at once
LONGEST_EPISODE = 10_000  # steps
EXTRA_STEPS = 1_000  # for the other episodes of a batch after the first has ended
STRIDE = 61  # offset between the actions of two episodes in the pool
LONG_STEP = 5e-4  # seconds
MORE_EPISODES = 6  # of a host environment whose first ones end at the same step


class Endings(NamedTuple):
    """`lengths` has the steps of each episode, 0 if it had not ended after `limit`."""

    lengths: list[int]
    limit: int
    has_flags: bool
    disagreement: Finding | None = None
    not_finite: Finding | None = None  # the first reward that is NaN or infinite


def is_endless(env: Environment) -> bool:
    while isinstance(env, Transform):
        env = env.env
    return env.endless


def explain_flags(terminated: Any, truncated: Any, done: Any) -> str | None:
    """Why `done` is not `terminated | truncated`."""
    if (bool(terminated) or bool(truncated)) == bool(done):
        return None
    observed = f"terminated is {bool(terminated)}, truncated is {bool(truncated)}, but done is {bool(done)}"
    return f"{observed}; return done = terminated | truncated"


def explain_reward(reward: Any) -> str:
    return f"reward is {format_value(reward)}, not a finite number"


def find_endings(context: CheckContext) -> Endings:
    """Run a batch of compiled episodes or, if that fails, a few step by step."""
    if context.pure and context.fast is not context.plain:
        found: list[Endings] = []
        if attempt(lambda: found.append(_find_in_batch(context))) is None:
            return found[0]
    return _find_step_by_step(context)


class _BatchState(NamedTuple):
    """The state of a batch of episodes; 0 stands for a step that has not occurred."""

    time: Any
    state: Any
    lengths: Any
    disagreements: Any  # the step at which done was not terminated | truncated
    not_finite: Any  # the first step whose reward was NaN or infinite


def _find_in_batch(context: CheckContext) -> Endings:
    limit = context.num_steps if is_endless(context.env) else max(LONGEST_EPISODE, context.num_steps)
    reset, step = jax.vmap(context.plain.reset), jax.vmap(context.plain.step)
    keys = jax.vmap(step_key, (0, None))
    lanes = np.arange(BATCH)
    names: list[str] = []

    def is_running(batch: _BatchState) -> Any:
        ended = batch.lengths > 0
        first = jnp.where(ended, batch.lengths, limit).min()
        going = (batch.time < limit) & (batch.time < first + EXTRA_STEPS)
        return going & ~jnp.all(ended) & ~jnp.any(batch.disagreements)

    def run(words: Any, pool: Any, size: Any) -> tuple[Any, Any, Any]:
        def advance(batch: _BatchState) -> _BatchState:
            rows = (batch.time + STRIDE * lanes) % size
            actions = jax.tree.map(lambda leaf: leaf[rows], pool)
            time = batch.time + 1
            _, state, reward, done, info = step(keys(words, time), batch.state, actions)
            names[:] = info
            terminated, truncated = flags(done, info)
            running = batch.lengths == 0
            disagree = running & ((terminated | truncated) != done)
            lengths = jnp.where(running & done, time, batch.lengths)
            bad = running & ~jnp.isfinite(reward) & (batch.not_finite == 0)
            return _BatchState(
                time, state, lengths, jnp.where(disagree, time, 0), jnp.where(bad, time, batch.not_finite)
            )

        zeros = jnp.zeros(BATCH, jnp.int32)
        initial = _BatchState(jnp.int32(0), reset(keys(words, 0))[1], zeros, zeros, zeros)
        ended = lax.while_loop(is_running, advance, initial)
        return ended.lengths, ended.disagreements, ended.not_finite

    words = np.stack([seed_words(context.seed + lane) for lane in range(BATCH)])
    found = compile_quickly(run, level=_level(context))(words, *context.pool(context.seed))
    lengths, disagreements, not_finite = jax.device_get(found)
    disagreement = _replay(context, disagreements).disagreement if disagreements.any() else None
    bad = _replay(context, not_finite).not_finite if not_finite.any() else None
    return Endings(lengths.tolist(), limit, _has_flags(names), disagreement, bad)


def _level(context: CheckContext) -> int:
    """The optimisation level: worth it only where a step is slow, since thousands are run."""
    _, state = context.fast.reset(context.key(context.seed, 0))
    key, action = context.key(context.seed, 1), jax.tree.map(jnp.asarray, context.actions(context.seed, 1)[0])
    started = perf_counter()
    jax.block_until_ready(context.fast.step(key, state, action))
    return int(perf_counter() - started > LONG_STEP)


def _replay(context: CheckContext, faults: Any) -> Endings:
    """Run the shortest of the batch's episodes with a fault by itself, up to that step."""
    lane = int(np.where(faults > 0, faults, np.iinfo(faults.dtype).max).argmin())
    start = STRIDE * lane
    actions = context.stream(context.seed, start, start + int(faults[lane]))
    return _run_episode(context, context.seed + lane, actions)


def _find_step_by_step(context: CheckContext) -> Endings:
    """Only the first episode of a host environment may be long; plain calls of a pure one are too slow."""
    short, seeds = context.num_steps, range(context.seed, context.seed + NUM_SEEDS)
    limit = short if context.pure or is_endless(context.env) else 10 * short
    limits = [limit, *[short] * (NUM_SEEDS - 1)]
    episodes = [_run_episode(context, seed, context.stream(seed, 0, n)) for seed, n in zip(seeds, limits, strict=True)]
    lengths = [length for episode in episodes for length in episode.lengths]
    has_flags = any(episode.has_flags for episode in episodes)
    if not has_flags and len(set(lengths)) == 1 and lengths[0] > 1:
        more = range(seeds[-1] + 1, seeds[-1] + 1 + MORE_EPISODES)
        lengths += [_run_episode(context, seed, context.stream(seed, 0, lengths[0])).lengths[0] for seed in more]
    disagreement = next((episode.disagreement for episode in episodes if episode.disagreement), None)
    not_finite = next((episode.not_finite for episode in episodes if episode.not_finite), None)
    return Endings(lengths, limit, has_flags, disagreement, not_finite)


def _run_episode(context: CheckContext, seed: int, actions: Iterator[Any]) -> Endings:
    """Run one episode to its end, to a disagreement, or to the last action."""
    taken: list[Any] = []
    has_flags, length, found, bad = False, 0, None, None
    for time, record in enumerate(context.run(context.fast, seed, _record_actions(actions, taken))):
        if time == 0:
            continue
        has_flags = has_flags or _has_flags(record.info)
        message = explain_flags(*flags(record.done, record.info), record.done)
        if message:
            found = context.with_example(Finding("step", f"step {time}: {message}"), seed, taken)
            break
        if bad is None and not np.isfinite(record.reward):
            bad = context.with_example(Finding("step", f"step {time}: {explain_reward(record.reward)}"), seed, taken)
        length = time if record.done else 0
    return Endings([length], len(taken), has_flags, found, bad)


def _record_actions(actions: Iterator[Any], taken: list[Any]) -> Iterator[Any]:
    for action in actions:
        taken.append(action)
        yield action


def _has_flags(info: Any) -> bool:
    return "terminated" in info or "truncated" in info
