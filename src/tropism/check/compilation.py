"""Laws of compilation: jit, scan, vmap and vmapped params give what plain calls give."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tropism.check.compare import TOLERANCE, host
from tropism.check.context import Calls, Moment, Subject, calls_of, compare_runs, compile_quickly
from tropism.check.finding import Finding

LANES = 3
SCANNED = 8  # steps
PARAMS_STEPS = 2
NUDGE = 0.9  # a number is made smaller, since some of them are probabilities


def check_jit(subject: Subject) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        compiled = subject.run(subject.compiled, seed, actions)
        return compare_runs("step", compiled, subject.reference(seed, actions), TOLERANCE)

    return subject.smallest(fails)


def check_scan(subject: Subject) -> Finding | None:
    """The keys and actions go in as arrays, so one compilation serves every example of one length."""
    scanned = compile_quickly(_scanned(subject))

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        first, later = host(scanned(subject.keys(seed, len(actions)), _stack(actions)))
        moments = [first, *(_pick(later, i) for i in range(len(actions)))]
        looped = list(subject.run(subject.compiled, seed, actions))
        return compare_runs("step", moments[: len(looped)], looped, TOLERANCE)

    return subject.smallest(lambda seed, actions: fails(seed, actions) if actions else None, SCANNED)


def _scanned(subject: Subject) -> Callable[[Any, Any], tuple[Moment, Moment]]:
    """An episode with these keys and actions: its first moment, and the later ones, stacked."""

    def step(state: Any, xs: Any) -> tuple[Any, Moment]:
        key, action = xs
        obs, state, *rest = subject.plain.step(key, state, action)
        return state, Moment(obs, state, *rest)

    def run(keys: Any, actions: Any) -> tuple[Moment, Moment]:
        obs, state = subject.plain.reset(keys[0])
        return Moment(obs, state), lax.scan(step, state, (keys[1:], actions))[1]

    return run


def check_vmap(subject: Subject) -> Finding | None:
    batch = compile_quickly(jax.vmap(_scanned(subject), (0, None)))

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        seeds = range(seed, seed + LANES)
        loops = [list(subject.run(subject.compiled, lane, actions)) for lane in seeds]
        first, later = host(batch(subject.batch_keys(seeds, len(actions)), _stack(actions)))
        for lane, loop in enumerate(loops):
            moments = [_pick(first, lane), *(_pick(_pick(later, lane), i) for i in range(len(actions)))]
            found = compare_runs("step", moments[: len(loop)], loop, TOLERANCE)
            if found is not None:
                return found._replace(message=f"lane {lane} of {LANES}, {found.message}")
        return None

    return subject.smallest(lambda seed, actions: fails(seed, actions) if actions else None, LANES)


def _stack(actions: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *actions)


def _pick(stacked: Any, number: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[number], stacked)


def check_params(subject: Subject) -> Finding | None:
    """Every number is nudged in its own lane of one batch, and each lane compared with an episode of its own.

    A last lane has them all nudged: that one is compared with plain calls too, which take their time.
    """
    names, rows = _variants(subject.params)
    arrays = [jax.tree.map(_as_array, row) for row in rows]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *arrays)
    traced: list[int] = []  # the length of each episode that was compiled

    def episode(params: Any, keys: Any, actions: list[Any]) -> list[Moment]:
        traced.append(len(actions))
        return _episode(calls_of(subject.env, params), keys, actions)

    alone, batch = compile_quickly(episode), compile_quickly(jax.vmap(episode, (0, None, None)))

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        keys = [subject.key(seed, time) for time in range(len(actions) + 1)]
        actions = jax.tree.map(jnp.asarray, actions)
        before = len(traced)
        episodes = [host(alone(params, keys, actions)) for params in arrays]
        if len(traced) > before + 1:
            return Finding("step", "a new value of a param compiled the environment again")
        moments = host(batch(stacked, keys, actions))
        for lane, (name, mine) in enumerate(zip(names, episodes, strict=True)):
            found = compare_runs("step", [_pick(moment, lane) for moment in moments], mine, TOLERANCE)
            if found is not None:
                return found._replace(message=f"with {name} under vmap, {found.message}")
        plain = host(_episode(calls_of(subject.env, rows[-1]), keys, actions))
        found = compare_runs("step", episodes[-1], plain, TOLERANCE)
        return found and found._replace(message=f"with {names[-1]} under jit, {found.message}")

    return subject.smallest(fails, PARAMS_STEPS) if len(rows) > 2 else None


def _episode(calls: Calls, keys: list[Any], actions: list[Any]) -> list[Moment]:
    obs, state = calls.reset(keys[0])
    moments = [Moment(obs, state)]
    for key, action in zip(keys[1:], actions, strict=True):
        obs, state, *rest = calls.step(key, state, action)
        moments.append(Moment(obs, state, *rest))
    return moments


def _variants(params: Any) -> tuple[list[str], list[Any]]:
    """The params as they are; once more for each real leaf with that one nudged; and with all."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    values = [leaf for _, leaf in leaves]
    nudged = [_nudge(value) for value in values]
    names, rows = ["params as they are"], [params]
    for i, (path, value) in enumerate(leaves):
        if nudged[i] is not value:
            names.append(f"params{jax.tree_util.keystr(path)} nudged")
            rows.append(structure.unflatten([*values[:i], nudged[i], *values[i + 1 :]]))
    return [*names, "all params nudged"], [*rows, structure.unflatten(nudged)]


def _nudge(value: Any) -> Any:
    """Another number of the same type; a whole number as it is."""
    if isinstance(value, float):
        return NUDGE * value if value else 1 - NUDGE
    array = np.asarray(value)
    return np.where(array == 0, 1 - NUDGE, NUDGE * array).astype(array.dtype) if array.dtype.kind == "f" else value


def _as_array(value: Any) -> Any:
    return np.asarray(value, jnp.result_type(value))
