"""Laws of compilation: jit, scan, vmap and vmapped params give what plain calls give."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tropism.core.check.compare import TOLERANCE, host
from tropism.core.check.subject import Calls, Finding, Moment, Subject, calls_of, compare_runs

LANES = 3
SCANNED = 8  # steps
PARAMS_STEPS = 2
NUDGE = 0.9  # a number is made smaller, since some of them are probabilities


def check_jit(subject: Subject) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        compiled = subject.run(subject.compiled, seed, actions)
        return compare_runs("step", compiled, subject.run(subject.plain, seed, actions), TOLERANCE)

    return subject.smallest(fails)


def check_scan(subject: Subject) -> Finding | None:
    """The keys and actions go in as arrays, so one compilation serves every example of one length."""

    @jax.jit
    def scanned(keys: Any, actions: Any) -> tuple[Any, Any]:
        obs, state = subject.plain.reset(keys[0])

        def step(state: Any, xs: Any) -> tuple[Any, Moment]:
            key, action = xs
            obs, state, *rest = subject.plain.step(key, state, action)
            return state, Moment(obs, state, *rest)

        return Moment(obs, state), lax.scan(step, state, (keys[1:], actions))[1]

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        keys = jnp.stack([subject.key(seed, time) for time in range(len(actions) + 1)])
        first, later = scanned(keys, jax.tree.map(lambda *leaves: jnp.stack(leaves), *actions))
        moments = [first, *(jax.tree.map(lambda leaf, i=i: leaf[i], later) for i in range(len(actions)))]
        looped = list(subject.run(subject.compiled, seed, actions))
        return compare_runs("step", (host(m) for m in moments[: len(looped)]), looped, TOLERANCE)

    return subject.smallest(lambda seed, actions: fails(seed, actions) if actions else None, SCANNED)


def check_vmap(subject: Subject) -> Finding | None:
    batch = Calls(jax.jit(jax.vmap(subject.plain.reset)), jax.jit(jax.vmap(subject.plain.step)))

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        seeds = range(seed, seed + LANES)
        loops = [list(subject.run(subject.compiled, lane, actions)) for lane in seeds]
        keys = [jnp.stack([subject.key(lane, time) for lane in seeds]) for time in range(len(actions) + 1)]
        obs, state = batch.reset(keys[0])
        moments = [Moment(obs, state)]
        for key, action in zip(keys[1:], actions, strict=True):
            action = jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * LANES), action)
            obs, state, *rest = batch.step(key, state, action)
            moments.append(Moment(obs, state, *rest))
        for lane, loop in enumerate(loops):
            mine = [_lane(moment, lane) for moment in moments[: len(loop)]]
            found = compare_runs("step", mine, loop, TOLERANCE)
            if found is not None:
                return found._replace(message=f"lane {lane} of {LANES}, {found.message}")
        return None

    return subject.smallest(fails, LANES)


def _lane(moment: Moment, lane: int) -> Any:
    return host(jax.tree.map(lambda leaf: leaf[lane], moment))


def check_params(subject: Subject) -> Finding | None:
    """Every number is nudged in its own lane of one batch, and each lane compared with an episode of its own.

    A last lane has them all nudged: that one is compared with plain calls too, which take their time.
    """
    names, rows = _variants(subject.params)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
    traced: list[int] = []  # the length of each episode that was compiled

    def episode(params: Any, keys: Any, actions: list[Any]) -> list[Moment]:
        traced.append(len(actions))
        return _episode(calls_of(subject.env, params), keys, actions)

    alone, batch = jax.jit(episode), jax.jit(jax.vmap(episode, (0, None, None)))

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        keys = [subject.key(seed, time) for time in range(len(actions) + 1)]
        actions = jax.tree.map(jnp.asarray, actions)
        before = len(traced)
        episodes = [alone(params, keys, actions) for params in rows]
        if len(traced) > before + 1:
            return Finding("step", "a new value of a param compiled the environment again")
        moments = batch(stacked, keys, actions)
        for lane, (name, mine) in enumerate(zip(names, episodes, strict=True)):
            theirs = [_lane(moment, lane) for moment in moments]
            found = compare_runs("step", theirs, [host(moment) for moment in mine], TOLERANCE)
            if found is not None:
                return found._replace(message=f"with {name} under vmap, {found.message}")
        plain = [host(moment) for moment in _episode(calls_of(subject.env, rows[-1]), keys, actions)]
        found = compare_runs("step", [host(moment) for moment in episodes[-1]], plain, TOLERANCE)
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
    """The params as they are, as arrays; once more for each real leaf with that one nudged; and with all."""
    arrays = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), params)
    leaves, structure = jax.tree_util.tree_flatten_with_path(arrays)
    values = [leaf for _, leaf in leaves]
    names, rows = ["params as they are"], [structure.unflatten(values)]
    nudged = [_nudged(leaf) for leaf in values]
    for i, (path, leaf) in enumerate(leaves):
        if nudged[i] is not leaf:
            names.append(f"params{jax.tree_util.keystr(path)} nudged")
            rows.append(structure.unflatten([*values[:i], nudged[i], *values[i + 1 :]]))
    return [*names, "all params nudged"], [*rows, structure.unflatten(nudged)]


def _nudged(leaf: Any) -> Any:
    return jnp.where(leaf == 0, 1 - NUDGE, leaf * NUDGE).astype(leaf.dtype) if leaf.dtype.kind == "f" else leaf
