"""Compares native rollouts with XLA's, bit for bit, and chooses those that are equal."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tropism.core.compiled.reset_where import SMALLEST_GATHERED_BATCH
from tropism.core.native.batch_engine import LANES, STEPS
from tropism.core.native.builder import Unsupported
from tropism.core.native.choice import compile_natively
from tropism.core.native.rollout import NativeRolloutProgram
from tropism.core.native.scalarize import is_key
from tropism.core.native.verdicts import Verdict, verdict_of
from tropism.core.native.verification import FIRST_SEED
from tropism.core.rollout.lane import check_lanes
from tropism.core.rollout.plan import RolloutPlan, plan_identity
from tropism.core.rollout.policy import jax_key
from tropism.core.rollout.scan import run_steps, transition_shapes

MAX_PROGRAMS = 64  # kept for the next rollout with the same plan
SHORTEST = 10_000_000  # steps of all environments; XLA takes fewer in less time than a comparison costs
LEAST_COMPARED = 10_000  # steps of all environments
COMPARED_BYTES = 2**27  # of transitions

_programs: dict[Any, tuple[NativeRolloutProgram | None, str]] = {}
_steps: dict[Any, int] = {}  # taken so far by rollouts that are not compiled yet


def choose_native(plan: RolloutPlan, key: Any, params: Any, verified: bool, num_steps: int) -> tuple[Any, str]:
    """The function that runs this rollout natively, or None and the reason.

    XLA's bits may depend on how it replaces finished environments, and so on the number of environments: large
    batches are compared at one size, small ones at their own.
    """
    steps = plan.num_envs * num_steps
    plan = replace(plan, num_envs=plan.num_envs if plan.num_envs < SMALLEST_GATHERED_BATCH else LANES)
    identity = plan_identity(plan, key, params)
    if identity not in _programs:
        _steps[identity] = _steps.pop(identity, 0) + steps
        if verified and _steps[identity] < SHORTEST:
            _drop_oldest(_steps)
            return None, f"rollout: its {_steps[identity]:,} steps so far are fewer than {SHORTEST:,}"
        transition_shapes(plan, key, params)  # an error of the policy or the environment is raised here
        _programs[identity] = compile_natively(plan.env, lambda: _compile(plan, key, params))
        _drop_oldest(_programs)
    native, reason = _programs[identity]
    if native is None or not verified:
        return native and native.run, reason
    verdict = verdict_of(native.digest, lambda: verify_rollout(native, plan, params))
    return (native.run, "") if verdict.step else (None, f"native steps differ: {verdict.reason}")


def _drop_oldest(table: dict[Any, Any]) -> None:
    if len(table) > MAX_PROGRAMS:
        del table[next(iter(table))]


def _compile(plan: RolloutPlan, key: Any, params: Any) -> NativeRolloutProgram:
    if jax.default_backend() != "cpu":
        raise Unsupported("device", "the default device is not a CPU")
    if not is_key(key) or random.key_data(key).shape != (2,):
        raise Unsupported("key", f"keys that are not threefry2x32: {key.dtype}")
    check_lanes(plan, key, params)
    return NativeRolloutProgram(plan, key, params)


def verify_rollout(native: NativeRolloutProgram, plan: RolloutPlan, params: Any) -> Verdict:
    """Run both at a fixed seed: a part of a rollout, whose whole state is compared, and one from start to end."""
    compiled, reason = compile_natively(plan.env, native.compile)
    if compiled is None:
        return Verdict(False, False, reason)
    key = jax_key(FIRST_SEED)
    row = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(native.shapes.transition))
    steps = max(STEPS, -(-LEAST_COMPARED // plan.num_envs))
    steps = max(1, min(steps, COMPARED_BYTES // (max(row, 1) * plan.num_envs)))
    for last in (False, True):
        arguments = plan, None, key, params, jnp.int32(0), steps, True, last
        (expected, *rows), (found, *native_rows) = run_steps(*arguments), native.run(*arguments)
        if not native.keeps_obs:
            expected, found = expected._replace(obs=None), found._replace(obs=None)
        if path := _first_difference((expected, rows), (found, native_rows)):
            return Verdict(False, False, f"{path} in {steps} steps of {plan.num_envs} environments")
    return Verdict(True, True)


def _first_difference(expected: Any, found: Any) -> str:
    """The path of the first leaf that differs; empty if all bits are equal."""
    for (path, x), y in zip(jax.tree.leaves_with_path(expected), jax.tree.leaves(found), strict=True):
        x, y = (random.key_data(leaf) if is_key(leaf) else leaf for leaf in (x, y))
        if x.dtype != y.dtype or x.shape != y.shape or np.asarray(x).tobytes() != np.asarray(y).tobytes():
            return jax.tree_util.keystr(path)
    return ""
