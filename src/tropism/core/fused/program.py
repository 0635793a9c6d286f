"""One environment's part of a rollout's step as a graph: what is carried from step to step, and what is summed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from tropism.core.compiled.cost import member_shape
from tropism.core.fused.graph import LANE, STEP, GraphBuilder, Node, reachable
from tropism.core.native.builder import DType, StridedView
from tropism.core.native.rules import FAMILIES
from tropism.core.native.scalarize import (
    Value,
    as_scalars,
    evaluate,
    load_all,
    physical_dtype,
    physical_shape,
    row_strides,
)
from tropism.core.rollout.lane import KEYS, act_one, draws_for_batch, restart_one, step_one
from tropism.core.rollout.plan import RolloutPlan
from tropism.core.rollout.scan import ScanCarry

SUPPORTED = FAMILIES  # families of primitives; importing them registers their rules
WORD = np.dtype(np.uint32)
TIME = np.dtype(np.int32)


@dataclass(frozen=True, eq=False)
class TracedLeaf:
    """A leaf of a pytree in the traced program: its shape and dtype, and its nodes or its place in memory."""

    struct: jax.ShapeDtypeStruct
    value: Any


class Variable(NamedTuple):
    """A scalar that is carried through the steps: its input, its value after a step, and after a restart."""

    before: Node
    after: Node
    renewed: Node


class LaneProgram:
    """The graph of a step of one environment.

    `variables` are the scalars of the carry (observation, state, memory, statistics), then those of the sums.
    """

    def __init__(self, plan: RolloutPlan, carry: ScanCarry, params: Any):
        self.b = GraphBuilder()
        arrays, self._static = eqx.partition(plan, eqx.is_array)
        self.arrays = jax.tree.leaves((arrays, params))
        views = map(_view, range(len(self.arrays)), self.arrays)
        self._params = jax.tree.unflatten(jax.tree.structure((arrays, params)), views)
        words = [self.b.input(STEP, position, WORD) for position in range(2 * KEYS)]
        self._keys = [_leaf(words[2 * i : 2 * i + 2], (2,), WORD) for i in range(KEYS)]
        self._time = _leaf([self.b.input(STEP, 2 * KEYS, TIME)], (), TIME)
        self.lane = self.b.input(LANE, -1, WORD)
        self._lane_leaf = _leaf([self.lane], (), WORD)
        self._count = 0
        self._trace(plan, jax.tree.map(self._lane_input, carry._replace(totals=None)))

    def _lane_input(self, batch: Any) -> TracedLeaf:
        leaf = member_shape(batch)
        first, self._count = self._count, self._count + int(np.prod(physical_shape(leaf)))
        nodes = [self.b.input(LANE, position, physical_dtype(leaf)) for position in range(first, self._count)]
        return TracedLeaf(leaf, as_scalars(nodes, physical_shape(leaf)))

    def _trace(self, plan: RolloutPlan, before: ScanCarry) -> None:
        obs, state, memories, episodes, _ = before
        self.b.batch_lane = self.lane if draws_for_batch(plan) else None  # then all actions come from one key
        action, acted = self._call(act_one, self._keys[0], self._lane_leaf, memories, obs)
        self.b.batch_lane = None
        stepped = self._call(step_one, self._keys[1], self._time, self._lane_leaf, obs, state, action, episodes)
        seen, state, episodes, done, summand, _ = stepped
        self.done: Node = done.value.item()
        self.variables: list[Variable] = []
        self._add_sums(jax.tree.leaves(summand))
        restarted = self._call(restart_one, self._keys[0], self._keys[2], self._lane_leaf, state)
        trees = before, (seen, state, acted, episodes), (*restarted, episodes)
        for old, after, renewed in zip(*(_nodes(jax.tree.leaves(tree)) for tree in trees), strict=True):
            self.variables.insert(old.detail, Variable(old, after, renewed))

    def _call(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """Trace `function(plan, params, *inputs)` into the graph."""

        def run(traced: Any, *arguments: Any) -> Any:
            arrays, params = traced
            return function(eqx.combine(arrays, self._static), params, *arguments)

        trees = self._params, *inputs
        structs = jax.tree.map(lambda leaf: leaf.struct, trees)
        values: list[Value] = [leaf.value for leaf in jax.tree.leaves(trees)]
        closed, shapes = jax.make_jaxpr(run, return_shape=True)(*structs)
        results = [load_all(self.b, value) for value in evaluate(self.b, closed.jaxpr, closed.consts, values)]
        leaves, structure = jax.tree.flatten(shapes)
        return structure.unflatten(map(TracedLeaf, leaves, results))

    def _add_sums(self, summands: list[TracedLeaf]) -> None:
        self.sum_sizes = [int(leaf.value.size) for leaf in summands]
        for node in _nodes(summands):
            total = self.b.input(LANE, self._count, node.dtype)
            self._count += 1
            added = self.b.op("or" if node.dtype.kind == "b" else "add", node.dtype, total, node)
            self.variables.append(Variable(total, added, added))

    def live(self, required: set[int]) -> list[int]:
        """The positions of the variables that these depend on, over any number of steps."""
        while True:
            roots = [self.done, *(node for i in required for node in self.variables[i][1:])]
            found = {node.detail for node in reachable(roots) if node.name == "input" and node.level == LANE} - {-1}
            if found <= required:
                return sorted(required)
            required = required | found


def _leaf(nodes: Sequence[Node], shape: tuple[int, ...], dtype: DType) -> TracedLeaf:
    return TracedLeaf(jax.ShapeDtypeStruct(shape, dtype), as_scalars(nodes, shape))


def _view(number: int, array: Any) -> TracedLeaf:
    shape = physical_shape(array)
    view = StridedView(number, physical_dtype(array), shape, row_strides(shape))
    return TracedLeaf(jax.ShapeDtypeStruct(array.shape, array.dtype), view)


def _nodes(leaves: Sequence[TracedLeaf]) -> list[Node]:
    return [node for leaf in leaves for node in leaf.value.reshape(-1)]
