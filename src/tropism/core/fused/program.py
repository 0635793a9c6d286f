"""One environment's part of a rollout's step as a graph: what is carried from step to step, and what is summed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from tropism.core.fused.graph import LANE, STEP, GraphBuilder, Node, check_configuration, reachable
from tropism.core.native.builder import StridedView
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
from tropism.core.rollout.lane import KEYS, act_one, draw_one, draws_for_batch, lane_shape, restart_one, step_one
from tropism.core.rollout.plan import RolloutPlan
from tropism.core.rollout.scan import ScanCarry

SUPPORTED = FAMILIES  # families of primitives; importing them registers their rules
WORD = np.dtype(np.uint32)


class Values(NamedTuple):
    """A pytree of shapes, and the value of each leaf."""

    shapes: Any
    leaves: list[Any]

    def parts(self) -> list["Values"]:
        """The elements of a tuple."""
        start, parts = 0, list[Values]()
        for shapes in self.shapes:
            count = len(jax.tree.leaves(shapes))
            parts.append(Values(shapes, self.leaves[start : start + count]))
            start += count
        return parts


def join(*parts: Values) -> Values:
    return Values(tuple(part.shapes for part in parts), [leaf for part in parts for leaf in part.leaves])


class Variable(NamedTuple):
    """A scalar that is carried through the steps: its input, its value after a step, and after a restart."""

    before: Node
    after: Node
    renewed: Node


class LaneProgram:
    """The graph of a step of one environment.

    `variables` are the scalars of the carry (observation, state, memory, statistics), then those of the sums.
    Nodes from number `restart` on are needed only where `done`.
    """

    def __init__(self, plan: RolloutPlan, carry: ScanCarry, params: Any):
        check_configuration()
        self.b = GraphBuilder()
        arrays, self._static = eqx.partition(plan, eqx.is_array)
        self.arrays = jax.tree.leaves((arrays, params))
        self.carry_shapes = jax.tree.map(lane_shape, carry._replace(totals=None))
        self._inputs(arrays, params)
        self._trace(plan)

    def _inputs(self, arrays: Any, params: Any) -> None:
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (arrays, params))
        views: list[Any] = []
        for number, leaf in enumerate(jax.tree.leaves(shapes)):
            shape = physical_shape(leaf)
            views.append(StridedView(number, physical_dtype(leaf), shape, row_strides(shape)))
        self.params = Values(shapes, views)
        words = [self.b.input(STEP, position, WORD) for position in range(2 * KEYS)]
        pair = jax.ShapeDtypeStruct((2,), WORD)
        self.keys = [Values(pair, [as_scalars(words[2 * i : 2 * i + 2], (2,))]) for i in range(KEYS)]
        time = self.b.input(STEP, 2 * KEYS, np.dtype(np.int32))
        self.time = Values(jax.ShapeDtypeStruct((), np.int32), [as_scalars([time], ())])
        self.lane = self.b.input(LANE, -1, WORD)
        self._count = 0

    def _lane_inputs(self, shapes: Any) -> Values:
        leaves: list[Any] = []
        for leaf in jax.tree.leaves(shapes):
            size = int(np.prod(physical_shape(leaf)))
            positions = range(self._count, self._count + size)
            nodes = [self.b.input(LANE, position, physical_dtype(leaf)) for position in positions]
            leaves.append(as_scalars(nodes, physical_shape(leaf)))
            self._count += size
        return Values(shapes, leaves)

    def _trace(self, plan: RolloutPlan) -> None:
        before = self._lane_inputs(tuple(self.carry_shapes))
        obs, state, memories, episodes, _ = before.parts()
        action, acted = self._act(plan, memories, obs).parts()
        lane = Values(jax.ShapeDtypeStruct((), WORD), [as_scalars([self.lane], ())])
        traced = self._call(step_one, self.keys[1], self.time, lane, obs, state, action, episodes)
        seen, state, episodes, done, summand, _ = traced.parts()
        self.done: Node = done.leaves[0].item()
        self.variables: list[Variable] = []
        self._add_sums(summand)
        self.restart = len(self.b.nodes)
        first_obs, first_state, memory = self._call(restart_one, self.keys[0], self.keys[2], lane, state).parts()
        none = Values(None, [])
        after, renewed = join(seen, state, acted, episodes, none), join(first_obs, first_state, memory, episodes, none)
        for old, new, restarted in zip(*map(self._scalars, (before, after, renewed)), strict=True):
            self.variables.insert(old.detail, Variable(old, new, restarted))

    def _act(self, plan: RolloutPlan, memories: Values, obs: Values) -> Values:
        lane = Values(jax.ShapeDtypeStruct((), WORD), [as_scalars([self.lane], ())])
        if not draws_for_batch(plan):
            return self._call(act_one, self.keys[0], lane, memories, obs)
        self.b.batch_lane = self.lane  # all actions come from one key
        try:
            return self._call(draw_one, self.keys[0], lane, memories, obs)
        finally:
            self.b.batch_lane = None

    def _call(self, function: Callable[..., Any], *inputs: Values) -> Values:
        """Trace `function(plan, params, *inputs)` into the graph."""

        def run(traced: Any, *arguments: Any) -> Any:
            arrays, params = traced
            return function(eqx.combine(arrays, self._static), params, *arguments)

        closed, shapes = jax.make_jaxpr(run, return_shape=True)(self.params.shapes, *(part.shapes for part in inputs))
        leaves: list[Value] = [*self.params.leaves, *(leaf for part in inputs for leaf in part.leaves)]
        results = evaluate(self.b, closed.jaxpr, closed.consts, leaves)
        return Values(shapes, [load_all(self.b, value) for value in results])

    def _add_sums(self, summand: Values) -> None:
        self.sum_sizes = [int(leaf.size) for leaf in summand.leaves]
        for node in self._scalars(summand):
            total = self.b.input(LANE, self._count, node.dtype)
            self._count += 1
            added = self.b.op("or" if node.dtype.kind == "b" else "add", node.dtype, total, node)
            self.variables.append(Variable(total, added, added))

    def _scalars(self, values: Values) -> list[Node]:
        return [node for leaf in values.leaves for node in leaf.reshape(-1)]

    def live(self, required: set[int]) -> list[int]:
        """The positions of the variables that these depend on, over any number of steps."""
        while True:
            roots = [self.done, *(node for i in required for node in self.variables[i][1:])]
            found = {node.detail for node in reachable(roots) if node.name == "input" and node.level == LANE} - {-1}
            if found <= required:
                return sorted(required)
            required = required | found
