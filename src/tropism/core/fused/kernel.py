"""The kernel: runs all steps of a block of environments, with their state in registers."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from tropism.core.fused.graph import LANE, ROLLOUT, STEP, Node, reachable, sort_nodes
from tropism.core.fused.operations import broadcast, evaluate_nodes, from_word, to_word
from tropism.core.fused.program import LaneProgram
from tropism.core.native.builder import Unsupported
from tropism.core.native.scalarize import is_key
from tropism.core.rollout.lane import KEYS

BLOCK = 32  # environments a program, one in each thread of a warp: larger ones were slower on an H200
MAX_OPERATIONS = 2_000  # Triton takes more than a minute to compile larger kernels


class Kernel:
    """A lane program with the variables that the required ones depend on; the others are not computed."""

    def __init__(self, program: LaneProgram, required: set[int]):
        self.program = program
        self.positions = program.live(required)
        self.variables = [program.variables[position] for position in self.positions]
        first = reachable([program.done, *(variable.after for variable in self.variables)])
        both = first | reachable(variable.renewed for variable in self.variables)
        self._step = _in_lanes(first)
        self._restart = _in_lanes(both - first)
        if len(both) > MAX_OPERATIONS:
            raise Unsupported("kernel", f"{len(both):,} operations are more than {MAX_OPERATIONS:,}")
        uniform = _uniform(
            self._step + self._restart, [program.done, *(node for v in self.variables for node in v[1:])]
        )
        self._rollout_inputs = [node for node in uniform if node.level <= ROLLOUT]
        self._step_inputs = [node for node in uniform if node.level == STEP]
        self._arrays = sorted({node.detail for node in self._step + self._restart if node.name == "load"})

    def run(self, length: int, words: Any, times: Any, variables: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
        """The variables, one array each, after `length` steps; row i of `words` has the keys of step i."""
        size = variables[0].shape[0]
        count = -(-size // BLOCK)
        flat = {number: _flat(array) for number, array in enumerate(arrays)}
        fixed, steps = self._tables(words, times, flat)
        carry = jnp.stack([jnp.pad(to_word(value), (0, count * BLOCK - size)) for value in variables])
        tables = [flat[number] for number in self._arrays]
        tables = [table.astype(jnp.int8) if table.dtype == bool else table for table in tables]
        call: Any = pl.pallas_call(
            lambda *refs: self._kernel(length, *refs),
            out_shape=jax.ShapeDtypeStruct(carry.shape, jnp.uint32),
            grid=(count,),
            compiler_params=triton.CompilerParams(num_warps=BLOCK // 32, num_stages=1),
            interpret=jax.default_backend() == "cpu",
        )
        results = call(fixed, steps, carry, *tables)[:, :size]
        return [from_word(row, v.before.dtype) for row, v in zip(results, self.variables, strict=True)]

    def _tables(self, words: Any, times: Any, arrays: dict[int, Any]) -> tuple[Any, Any]:
        """What is the same for all environments, computed before the kernel: for the rollout and for each step."""
        known: dict[Node, Any] = {}
        evaluate_nodes(sort_nodes(reachable(self._rollout_inputs)), known, arrays)
        needed = sort_nodes(reachable(self._step_inputs))
        evaluate_nodes([node for node in needed if node.level <= ROLLOUT], known, arrays)

        def of_step(words: Any, time: Any) -> Any:
            values = dict(known)
            inputs = [node for node in needed if node.name == "input"]
            values.update((node, time if node.detail == 2 * KEYS else words[node.detail]) for node in inputs)
            evaluate_nodes(needed, values, arrays)
            return _as_words([values[node] for node in self._step_inputs])

        return _as_words([known[node] for node in self._rollout_inputs]), jax.vmap(of_step)(words, times)

    def _kernel(self, length: int, fixed: Any, steps: Any, carry: Any, *refs: Any) -> None:
        *tables, out = refs
        start = pl.program_id(0) * BLOCK
        lanes = pl.ds(start, BLOCK)
        lane = (start + lax.iota(jnp.int32, BLOCK)).astype(jnp.uint32)
        arrays = dict(zip(self._arrays, tables, strict=True))
        known = {node: from_word(fixed[i], node.dtype) for i, node in enumerate(self._rollout_inputs)}
        first = tuple(from_word(carry[i, lanes], v.before.dtype) for i, v in enumerate(self.variables))

        def step(time: Any, before: Any) -> Any:
            values = dict(known)
            values.update((v.before, value) for v, value in zip(self.variables, before, strict=True))
            for i, node in enumerate(self._step_inputs):
                values[node] = from_word(steps[time, i], node.dtype)
            values[self.program.lane] = lane
            return self._after(values, arrays)

        for i, value in enumerate(lax.fori_loop(0, length, step, first)):
            out[i, lanes] = to_word(value)

    def _after(self, values: dict[Any, Any], arrays: dict[int, Any]) -> tuple[Any, ...]:
        """The variables after a step; restarts are computed if an environment of the block has finished."""
        evaluate_nodes(self._step, values, arrays)
        after = tuple(self._vector(values, v.after) for v in self.variables)
        renewed = [i for i, v in enumerate(self.variables) if v.renewed is not v.after]
        if not renewed:
            return after
        done = self._vector(values, self.program.done)

        def restart() -> tuple[Any, ...]:
            inner = dict(values)
            evaluate_nodes(self._restart, inner, arrays)
            new = [self._vector(inner, self.variables[i].renewed) for i in renewed]
            return tuple(lax.select(done, x, after[i]) for x, i in zip(new, renewed, strict=True))

        any_done = jnp.max(done.astype(jnp.int32)) > 0
        results = dict(zip(renewed, lax.cond(any_done, restart, lambda: tuple(after[i] for i in renewed)), strict=True))
        return tuple(results.get(i, value) for i, value in enumerate(after))

    def _vector(self, values: dict[Any, Any], node: Node) -> Any:
        if node not in values:
            evaluate_nodes([node], values, {})  # a constant
        return broadcast(values[node], (BLOCK,))


def _in_lanes(nodes: set[Node]) -> list[Node]:
    """What a kernel computes; constants are part of it."""
    return [
        node for node in sort_nodes(nodes) if node.name != "input" and (node.level == LANE or node.name == "constant")
    ]


def _uniform(nodes: list[Node], roots: list[Node]) -> list[Node]:
    """The nodes that these use and that are the same for all environments."""
    used = {operand for node in nodes for operand in node.operands} | set(roots)
    return sort_nodes({node for node in used if node.level < LANE and node.name != "constant"})


def _as_words(values: list[Any]) -> Any:
    words = [to_word(jnp.asarray(value)) for value in values]
    return jnp.stack(words) if words else jnp.zeros(1, jnp.uint32)


def _flat(array: Any) -> Any:
    return (jax.random.key_data(array) if is_key(array) else array).reshape(-1)
