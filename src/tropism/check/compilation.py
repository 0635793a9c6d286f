"""Laws of compilation: jit, scan, vmap and vmapped params equal plain calls."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tropism.check.compare import TOLERANCE, to_host
from tropism.check.context import Calls, CheckContext, StepRecord, calls_of, compare_runs, compile_quickly
from tropism.check.finding import Finding

LANES = 3
SCANNED = 8  # steps
PARAMS_STEPS = 2
PERTURBATION = 0.9  # a factor below 1, since some numbers are probabilities


def check_jit(context: CheckContext) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        compiled = context.run(context.compiled, seed, actions)
        return compare_runs("step", compiled, context.reference(seed, actions), TOLERANCE)

    return context.find_smallest(fails)


def check_scan(context: CheckContext) -> Finding | None:
    """Keys and actions are arguments, so one compilation serves every example of one length."""
    scanned = compile_quickly(_episode_scan(context))

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        first, later = to_host(scanned(context.keys(seed, len(actions)), _stack(actions)))
        records = [first, *(_pick(later, i) for i in range(len(actions)))]
        looped = list(context.run(context.compiled, seed, actions))
        return compare_runs("step", records[: len(looped)], looped, TOLERANCE)

    return context.find_smallest(lambda seed, actions: fails(seed, actions) if actions else None, SCANNED)


def _episode_scan(context: CheckContext) -> Callable[[Any, Any], tuple[StepRecord, StepRecord]]:
    """A function that runs an episode with these keys and actions: its first record, and the later ones, stacked."""

    def step(state: Any, xs: Any) -> tuple[Any, StepRecord]:
        key, action = xs
        obs, state, *rest = context.plain.step(key, state, action)
        return state, StepRecord(obs, state, *rest)

    def run(keys: Any, actions: Any) -> tuple[StepRecord, StepRecord]:
        obs, state = context.plain.reset(keys[0])
        return StepRecord(obs, state), lax.scan(step, state, (keys[1:], actions))[1]

    return run


def check_vmap(context: CheckContext) -> Finding | None:
    batch = compile_quickly(jax.vmap(_episode_scan(context), (0, None)))

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        seeds = range(seed, seed + LANES)
        loops = [list(context.run(context.compiled, lane, actions)) for lane in seeds]
        first, later = to_host(batch(context.batch_keys(seeds, len(actions)), _stack(actions)))
        for lane, loop in enumerate(loops):
            records = [_pick(first, lane), *(_pick(_pick(later, lane), i) for i in range(len(actions)))]
            found = compare_runs("step", records[: len(loop)], loop, TOLERANCE)
            if found is not None:
                return found._replace(message=f"lane {lane} of {LANES}, {found.message}")
        return None

    return context.find_smallest(lambda seed, actions: fails(seed, actions) if actions else None, LANES)


def _stack(actions: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *actions)


def _pick(stacked: Any, number: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[number], stacked)


def check_params(context: CheckContext) -> Finding | None:
    """Each number is perturbed in its own lane of a batch, and each lane is compared with a separate episode.

    The last lane has all of them perturbed; only that one is compared with plain calls too, which are slow.
    """
    names, rows = _variants(context.params)
    arrays = [jax.tree.map(_as_array, row) for row in rows]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *arrays)
    compilations: list[int] = []  # the length of each episode that was traced

    def episode(params: Any, keys: Any, actions: list[Any]) -> list[StepRecord]:
        compilations.append(len(actions))
        return _episode(calls_of(context.env, params), keys, actions)

    alone, batch = compile_quickly(episode), compile_quickly(jax.vmap(episode, (0, None, None)))

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        keys = [context.key(seed, time) for time in range(len(actions) + 1)]
        actions = jax.tree.map(jnp.asarray, actions)
        before = len(compilations)
        episodes = [to_host(alone(params, keys, actions)) for params in arrays]
        if len(compilations) > before + 1:
            return Finding("step", "a new value of a param recompiled the environment")
        records = to_host(batch(stacked, keys, actions))
        for lane, (name, mine) in enumerate(zip(names, episodes, strict=True)):
            found = compare_runs("step", [_pick(record, lane) for record in records], mine, TOLERANCE)
            if found is not None:
                return found._replace(message=f"with {name} under vmap, {found.message}")
        plain = to_host(_episode(calls_of(context.env, rows[-1]), keys, actions))
        found = compare_runs("step", episodes[-1], plain, TOLERANCE)
        return found and found._replace(message=f"with {names[-1]} under jit, {found.message}")

    return context.find_smallest(fails, PARAMS_STEPS) if len(rows) > 2 else None


def _episode(calls: Calls, keys: list[Any], actions: list[Any]) -> list[StepRecord]:
    obs, state = calls.reset(keys[0])
    records = [StepRecord(obs, state)]
    for key, action in zip(keys[1:], actions, strict=True):
        obs, state, *rest = calls.step(key, state, action)
        records.append(StepRecord(obs, state, *rest))
    return records


def _variants(params: Any) -> tuple[list[str], list[Any]]:
    """The params unchanged, then with each real leaf perturbed, then with all of them perturbed."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    values = [leaf for _, leaf in leaves]
    perturbed = [_perturb(value) for value in values]
    names, rows = ["params unchanged"], [params]
    for i, (path, value) in enumerate(leaves):
        if perturbed[i] is not value:
            names.append(f"params{jax.tree_util.keystr(path)} perturbed")
            rows.append(structure.unflatten([*values[:i], perturbed[i], *values[i + 1 :]]))
    return [*names, "all params perturbed"], [*rows, structure.unflatten(perturbed)]


def _perturb(value: Any) -> Any:
    """Another number of the same type; integers are unchanged."""
    if isinstance(value, float):
        return PERTURBATION * value if value else 1 - PERTURBATION
    array = np.asarray(value)
    return (
        np.where(array == 0, 1 - PERTURBATION, PERTURBATION * array).astype(array.dtype)
        if array.dtype.kind == "f"
        else value
    )


def _as_array(value: Any) -> Any:
    return np.asarray(value, jnp.result_type(value))
