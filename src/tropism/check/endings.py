"""How random episodes end: after how many steps, and whether `done` agrees with the flags until then."""

from collections.abc import Iterator
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tropism.check.compare import spell
from tropism.check.context import NUM_SEEDS, Subject, compile_quickly
from tropism.check.finding import Finding, attempt
from tropism.core.environment import Environment, flags
from tropism.core.episode import moment_key, seed_words
from tropism.core.transforms.transform import Transform

BATCH = 64  # episodes of a pure environment, run at once
LONGEST_EPISODE = 10_000  # steps
STRAGGLING = 1_000  # steps that the other episodes of a batch may still take once the first has ended
STRIDE = 61  # between the actions of two episodes in the pool
LONG_STEP = 5e-4  # seconds
MORE_EPISODES = 6  # of a host environment, where the first ones end at the same step


class Endings(NamedTuple):
    """`lengths` has the steps of each episode, 0 where it had not ended after `limit`."""

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
    seen = f"terminated is {bool(terminated)}, truncated is {bool(truncated)}, but done is {bool(done)}"
    return f"{seen}; return done = terminated | truncated"


def explain_reward(reward: Any) -> str:
    return f"reward is {spell(reward)}, not a finite number"


def find_endings(subject: Subject) -> Endings:
    """Those of a batch of compiled episodes; where that does not work, of a few that are run step by step."""
    if subject.traced and subject.fast is not subject.plain:
        found: list[Endings] = []
        if attempt(lambda: found.append(_find_in_batch(subject))) is None:
            return found[0]
    return _find_step_by_step(subject)


class _Search(NamedTuple):
    """A batch of episodes on the way to their ends; 0 stands for a step that has not come."""

    time: Any
    state: Any
    lengths: Any
    disagreements: Any  # the step at which done was not terminated | truncated
    not_finite: Any  # the first step whose reward was NaN or infinite


def _find_in_batch(subject: Subject) -> Endings:
    limit = subject.num_steps if is_endless(subject.env) else max(LONGEST_EPISODE, subject.num_steps)
    reset, step = jax.vmap(subject.plain.reset), jax.vmap(subject.plain.step)
    keys = jax.vmap(moment_key, (0, None))
    lanes = np.arange(BATCH)
    names: list[str] = []

    def unfinished(search: _Search) -> Any:
        ended = search.lengths > 0
        first = jnp.where(ended, search.lengths, limit).min()
        going = (search.time < limit) & (search.time < first + STRAGGLING)
        return going & ~jnp.all(ended) & ~jnp.any(search.disagreements)

    def run(words: Any, pool: Any, size: Any) -> tuple[Any, Any, Any]:
        def advance(search: _Search) -> _Search:
            rows = (search.time + STRIDE * lanes) % size
            actions = jax.tree.map(lambda leaf: leaf[rows], pool)
            time = search.time + 1
            _, state, reward, done, info = step(keys(words, time), search.state, actions)
            names[:] = info
            terminated, truncated = flags(done, info)
            alive = search.lengths == 0
            disagree = alive & ((terminated | truncated) != done)
            lengths = jnp.where(alive & done, time, search.lengths)
            bad = alive & ~jnp.isfinite(reward) & (search.not_finite == 0)
            return _Search(time, state, lengths, jnp.where(disagree, time, 0), jnp.where(bad, time, search.not_finite))

        none = jnp.zeros(BATCH, jnp.int32)
        begun = _Search(jnp.int32(0), reset(keys(words, 0))[1], none, none, none)
        ended = lax.while_loop(unfinished, advance, begun)
        return ended.lengths, ended.disagreements, ended.not_finite

    words = np.stack([seed_words(subject.seed + lane) for lane in range(BATCH)])
    found = compile_quickly(run, level=_level(subject))(words, *subject.pool(subject.seed))
    lengths, disagreements, not_finite = jax.device_get(found)
    disagreement = _replay(subject, disagreements).disagreement if disagreements.any() else None
    bad = _replay(subject, not_finite).not_finite if not_finite.any() else None
    return Endings(lengths.tolist(), limit, _has_flags(names), disagreement, bad)


def _level(subject: Subject) -> int:
    """How much to optimise: where a step takes long, thousands of them are worth it."""
    _, state = subject.fast.reset(subject.key(subject.seed, 0))
    key, action = subject.key(subject.seed, 1), jax.tree.map(jnp.asarray, subject.actions(subject.seed, 1)[0])
    started = perf_counter()
    jax.block_until_ready(subject.fast.step(key, state, action))
    return int(perf_counter() - started > LONG_STEP)


def _replay(subject: Subject, faults: Any) -> Endings:
    """The shortest of the batch's episodes with a fault, up to that step, by itself."""
    lane = int(np.where(faults > 0, faults, np.iinfo(faults.dtype).max).argmin())
    start = STRIDE * lane
    actions = subject.stream(subject.seed, start, start + int(faults[lane]))
    return _follow(subject, subject.seed + lane, actions)


def _find_step_by_step(subject: Subject) -> Endings:
    """The first episode of a host environment may be long; plain calls of a pure one take too much time."""
    short, seeds = subject.num_steps, range(subject.seed, subject.seed + NUM_SEEDS)
    limit = short if subject.traced or is_endless(subject.env) else 10 * short
    limits = [limit, *[short] * (NUM_SEEDS - 1)]
    episodes = [_follow(subject, seed, subject.stream(seed, 0, n)) for seed, n in zip(seeds, limits, strict=True)]
    lengths = [length for episode in episodes for length in episode.lengths]
    has_flags = any(episode.has_flags for episode in episodes)
    if not has_flags and len(set(lengths)) == 1 and lengths[0] > 1:
        more = range(seeds[-1] + 1, seeds[-1] + 1 + MORE_EPISODES)
        lengths += [_follow(subject, seed, subject.stream(seed, 0, lengths[0])).lengths[0] for seed in more]
    disagreement = next((episode.disagreement for episode in episodes if episode.disagreement), None)
    not_finite = next((episode.not_finite for episode in episodes if episode.not_finite), None)
    return Endings(lengths, limit, has_flags, disagreement, not_finite)


def _follow(subject: Subject, seed: int, actions: Iterator[Any]) -> Endings:
    """One episode to its end, to a disagreement, or to the last action."""
    taken: list[Any] = []
    has_flags, length, found, bad = False, 0, None, None
    for time, moment in enumerate(subject.run(subject.fast, seed, _note(actions, taken))):
        if time == 0:
            continue
        has_flags = has_flags or _has_flags(moment.info)
        message = explain_flags(*flags(moment.done, moment.info), moment.done)
        if message:
            found = subject.with_example(Finding("step", f"step {time}: {message}"), seed, taken)
            break
        if bad is None and not np.isfinite(moment.reward):
            bad = subject.with_example(Finding("step", f"step {time}: {explain_reward(moment.reward)}"), seed, taken)
        length = time if moment.done else 0
    return Endings([length], len(taken), has_flags, found, bad)


def _note(actions: Iterator[Any], taken: list[Any]) -> Iterator[Any]:
    for action in actions:
        taken.append(action)
        yield action


def _has_flags(info: Any) -> bool:
    return "terminated" in info or "truncated" in info
