"""Compares fused rollouts with XLA's, and finds the reason why a rollout is not fused."""

import logging
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tropism.core.fused.engine import lane_program, run_fused
from tropism.core.fused.kernel import Kernel
from tropism.core.fused.program import LaneProgram
from tropism.core.native.builder import Unsupported
from tropism.core.native.verdicts import Verdict, verdict_of
from tropism.core.rollout.lane import check_lanes
from tropism.core.rollout.plan import RolloutPlan, plan_identity
from tropism.core.rollout.policy import jax_key
from tropism.core.rollout.scan import run_steps, start_rollout

log = logging.getLogger(__name__)

MAX_CHOICES = 64  # cached for the next rollout with the same plan
# The comparison with XLA: after every `LENGTH` steps both start again from XLA's state, because rounding errors grow.
NUM_ENVS, LENGTH, PARTS = 128, 16, 64
TOLERANCE = 1e-4  # relative, and absolute below 1
MAX_DIFFERENT = 2e-3  # of environments after a part: rounding can move a value across a threshold


_reasons: dict[Any, str] = {}


def reason_not_fused(plan: RolloutPlan, key: Any, params: Any, verified: bool) -> str:
    """Why a rollout is not fused; empty if it is."""
    identity = plan_identity(plan, key, params), verified
    if identity not in _reasons:
        _reasons[identity] = _find_reason(plan, key, params, verified)
        if len(_reasons) > MAX_CHOICES:
            del _reasons[next(iter(_reasons))]
    return _reasons[identity]


def _find_reason(plan: RolloutPlan, key: Any, params: Any, verified: bool) -> str:
    try:
        check_lanes(plan, key, params)
        carry = jax.eval_shape(lambda: start_rollout(plan, key, params))
        program, required = lane_program(plan, carry, key, params, not verified)
        Kernel(program, required)
    except Unsupported as error:
        return str(error)
    return _difference(plan, program, params) if verified else ""


def _difference(plan: RolloutPlan, program: LaneProgram, params: Any) -> str:
    """How the kernel differs from XLA; empty if it does not."""

    def verify() -> Verdict:
        difference = compare(plan, params)
        return Verdict(not difference, not difference, difference)

    try:
        return verdict_of(_digest(program), verify).reason
    except Exception as error:  # whatever fails in the kernel's compiler, the rollout still runs on XLA
        log.exception("the rollout of %s could not be compiled as one kernel", type(plan.env).__name__)
        return f"{type(error).__name__}: {error}"


def compare(plan: RolloutPlan, params: Any) -> str:
    """The first part in which too many environments differ from XLA's; empty if none."""
    plan, key, number = replace(plan, num_envs=NUM_ENVS), jax_key(0), 0
    carry = eqx.filter_jit(start_rollout)(plan, key, params)
    for part in range(PARTS):
        steps = plan, carry, key, params, jnp.int32(part * LENGTH), LENGTH, False, False
        carry, fused = run_steps(*steps)[0], run_fused(*steps)[0]
        different = np.zeros(NUM_ENVS, bool)
        for x, y in zip(jax.tree.leaves(carry), jax.tree.leaves(fused), strict=True):
            if x.shape[:1] == (NUM_ENVS,):
                different |= ~_is_close(x, y).reshape(NUM_ENVS, -1).all(1)
        number += int(different.sum())
        if number > MAX_DIFFERENT * NUM_ENVS * PARTS:
            return f"{number} environments differ from XLA's within {(part + 1) * LENGTH} steps"
    return ""


def _is_close(x: Any, y: Any) -> Any:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x, y = jax.random.key_data(x), jax.random.key_data(y)
    return np.isclose(np.asarray(y, np.float64), np.asarray(x, np.float64), TOLERANCE, TOLERANCE, equal_nan=True)


def _digest(program: LaneProgram) -> str:
    """Of the graph, the compiler and the device."""
    nodes = ((n.name, n.dtype.str, n.level, n.detail, *(x.number for x in n.operands)) for n in program.b.nodes)
    variables = [[node.number for node in variable] for variable in program.variables]
    text = repr((list(nodes), variables, jax.__version__, jax.devices()[0].device_kind))
    return blake2b(text.encode(), digest_size=16).hexdigest()
