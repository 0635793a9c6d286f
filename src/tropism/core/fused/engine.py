"""Runs a rollout's steps as one kernel, in place of the compiled loop."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random

from tropism.core.fused.kernel import Kernel
from tropism.core.fused.program import LaneProgram
from tropism.core.native.builder import Unsupported
from tropism.core.native.scalarize import is_key, physical_shape
from tropism.core.rollout.plan import RolloutPlan
from tropism.core.rollout.scan import Rollout, start_rollout, step_keys


@eqx.filter_jit
def run_fused(
    plan: RolloutPlan, carry: Any, key: Any, params: Any, start: Any, length: int, first: bool, last: bool
) -> tuple[Any, Any]:
    """Some steps of a rollout: `run_steps` as one kernel. It collects no transitions."""
    carry = start_rollout(plan, key, params) if first else carry
    program, required = lane_program(plan, carry, key, params, last)
    times = start + jnp.arange(length, dtype=jnp.int32)
    words = random.key_data(step_keys(key, times)).reshape(length, -1)
    columns, place = _columns(carry._replace(totals=None))
    sums = [jnp.zeros(plan.num_envs, v.before.dtype) for v in program.variables[len(columns) :]]
    kernel = Kernel(program, required)
    chosen = [[*columns, *sums][position] for position in kernel.positions]
    results = [*columns, *sums]
    for position, result in zip(
        kernel.positions, kernel.run(length, words, times, chosen, program.arrays), strict=True
    ):
        results[position] = result
    totals = _add_sums(program, carry.totals, results[len(columns) :])
    carry = place(results[: len(columns)])._replace(totals=totals)
    if not last:
        return carry, None
    return Rollout(None, carry.totals, None if carry.episodes is None else carry.episodes.totals(), None), None


def lane_program(plan: RolloutPlan, carry: Any, key: Any, params: Any, last: bool) -> tuple[LaneProgram, set[int]]:
    """The program of one environment, and the variables that the last steps or those before them must return."""
    if plan.collect:
        raise Unsupported("rollout", "it collects transitions")
    if random.key_data(key).shape != (2,):
        raise Unsupported("key", f"keys that are not threefry2x32: {key.dtype}")
    program = LaneProgram(plan, carry, params)
    leaves = jax.tree.leaves((carry.obs, carry.state, carry.memories))
    unused = sum(math.prod(physical_shape(leaf)[1:]) for leaf in leaves) if last else 0
    return program, set(range(unused, len(program.variables)))


def _columns(tree: Any) -> tuple[list[Any], Any]:
    """The scalars of a batch of pytrees, one array over the batch each, and the function that puts them together."""
    leaves, structure = jax.tree.flatten(tree)
    plain = [random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves]
    columns = [column for leaf in plain for column in leaf.reshape(leaf.shape[0], -1).T]

    def place(columns: list[Any]) -> Any:
        results: list[Any] = []
        for leaf, data in zip(leaves, plain, strict=True):
            size = math.prod(data.shape[1:])
            part, columns = columns[:size], columns[size:]
            result = jnp.stack(part, 1).reshape(data.shape) if part else data
            results.append(random.wrap_key_data(result, impl=random.key_impl(leaf)) if is_key(leaf) else result)
        return jax.tree.unflatten(structure, results)

    return columns, place


def _add_sums(program: LaneProgram, totals: Any, sums: list[Any]) -> Any:
    """The sums of each environment, or over all if `reduce` gives one value for the batch."""
    leaves, structure = jax.tree.flatten(totals)
    results: list[Any] = []
    for total, size in zip(leaves, program.sum_sizes, strict=True):
        part, sums = sums[:size], sums[size:]
        lanes = jnp.stack(part, 1) if part else jnp.zeros(0)
        added = lanes if total.size == lanes.size else lanes.sum(0)
        results.append(total + added.reshape(total.shape).astype(total.dtype))
    return jax.tree.unflatten(structure, results)
