"""Laws of compilation: jit, scan, vmap and vmapped params equal plain calls."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tropism.check.compare import TOLERANCE, compare_runs, to_host
from tropism.check.context import CheckContext, StepRecord, calls_of, compile_quickly, pick, stack
from tropism.check.law import law, on_episodes
from tropism.core.environment import Environment
from tropism.core.episode import seed_words, step_key

LANES = 3
SCANNED = 8  # steps
PARAMS_STEPS = 2
PERTURBATION = 0.9  # a factor below 1, since some numbers are probabilities


@law("jit", "compiled calls equal plain calls", "global-state", needs=("pure",))
@on_episodes()
def check_jit(context: CheckContext, seed: int, actions: list[Any]) -> None:
    compiled = context.run(context.compiled_calls, seed, actions)
    compare_runs(compiled, context.cached_run(context.plain, seed, actions), tolerance=TOLERANCE)


def _scan(env: Environment, params: Any, words: Any, actions: Any) -> tuple[StepRecord, StepRecord]:
    """The first record of an episode, and the later ones, stacked."""
    calls = calls_of(env, params)

    def step(state: Any, xs: Any) -> tuple[Any, StepRecord]:
        time, action = xs
        obs, state, *rest = calls.step(step_key(words, time), state, action)
        return state, StepRecord(obs, state, *rest)

    obs, state = calls.reset(step_key(words, 0))
    times = jnp.arange(len(jax.tree.leaves(actions)[0])) + 1
    return StepRecord(obs, state), lax.scan(step, state, (times, actions))[1]


def _compile_scan(context: CheckContext, bound: bool, axes: tuple[int | None, ...] | None = None) -> Any:
    """`_scan` of one episode or, with the axes of `vmap`, of a batch; its params are bound or its first argument."""
    scan = partial(_scan, context.env, context.params) if bound else partial(_scan, context.env)
    return compile_quickly(scan if axes is None else jax.vmap(scan, axes))


def _records(scan: Any, steps: int) -> list[StepRecord]:
    first, later = scan
    return [first, *(pick(later, step) for step in range(steps))]


def _compare_scan(scan: Any, expected: list[StepRecord], context: str = "") -> None:
    """Compare a scan, which continues after the end of the episode, with the records of a loop."""
    compare_runs(_records(scan, len(expected) - 1), expected, context, tolerance=TOLERANCE)


@law("scan", "a scan equals a loop", "jit", needs=("pure",))
@on_episodes(SCANNED)
def check_scan(context: CheckContext, seed: int, actions: list[Any]) -> None:
    if actions:
        scan = context.compute_once(_compile_scan, True)(seed_words(seed), stack(actions))
        _compare_scan(to_host(scan), list(context.run(context.compiled_calls, seed, actions)))


@law("vmap", "a batch equals its members one by one", "scan", needs=("pure",))
@on_episodes(LANES)
def check_vmap(context: CheckContext, seed: int, actions: list[Any]) -> None:
    if actions:
        seeds = range(seed, seed + LANES)
        words = np.stack([seed_words(lane_seed) for lane_seed in seeds])
        batch = to_host(context.compute_once(_compile_scan, True, (0, None))(words, stack(actions)))
        for lane, lane_seed in enumerate(seeds):
            loop = list(context.run(context.compiled_calls, lane_seed, actions))
            _compare_scan(pick(batch, lane), loop, f"lane {lane} of {LANES}, ")


@law("params", "params can be vmapped, and a new value does not recompile", "vmap", needs=("pure",))
@on_episodes(PARAMS_STEPS)
def check_params(context: CheckContext, seed: int, actions: list[Any]) -> None:
    """Each number is perturbed in its own lane of a batch, and each lane is compared with a separate episode.

    The last lane has all of them perturbed; only that one is compared with plain calls too, which are slow.
    """
    names, rows = _variants(context.params)
    if not actions or len(rows) <= 2:
        return
    rest = seed_words(seed), stack(actions)
    arrays = [jax.tree.map(lambda leaf: np.asarray(leaf, jnp.result_type(leaf)), row) for row in rows]
    scan = context.compute_once(_compile_scan, False)
    episodes = [to_host(scan(params, *rest)) for params in arrays]
    batch = to_host(context.compute_once(_compile_scan, False, (0, None, None))(stack(arrays), *rest))
    for lane, (name, mine) in enumerate(zip(names, episodes, strict=True)):
        _compare_scan(pick(batch, lane), _records(mine, len(actions)), f"with {name} under vmap, ")
    plain = list(context.run(calls_of(context.env, rows[-1]), seed, actions))
    _compare_scan(episodes[-1], plain, f"with {names[-1]} under jit, ")


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
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return value
    perturbed = np.where(array == 0, 1 - PERTURBATION, PERTURBATION * array)
    return float(perturbed) if isinstance(value, float) else perturbed.astype(array.dtype)
