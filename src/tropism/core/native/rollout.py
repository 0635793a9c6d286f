"""The native form of a rollout: loops over its environments that act, step and restart, for many steps at once."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct, random
from numpy.typing import NDArray

from tropism.core.compiled.batch_actions import allocate_aligned
from tropism.core.compiled.cost import member_shape, primitives
from tropism.core.native.builder import Unsupported
from tropism.core.native.jit import Library
from tropism.core.native.lanes import LANE_NUMBER, LaneLoop, LaneTable, bind_lanes, check_threads, number_leaves
from tropism.core.native.llvm import assemble_loops
from tropism.core.native.program import ADDRESS, digest
from tropism.core.native.scalarize import is_key, live_inputs, physical_dtype, physical_shape
from tropism.core.rollout.lane import KEYS, act_one, draws_for_batch, restart_one, step_one
from tropism.core.rollout.plan import RolloutPlan
from tropism.core.rollout.scan import Rollout, ScanCarry, start_rollout, step_keys

NUMBER = ShapeDtypeStruct((), jnp.uint32)
TIME = ShapeDtypeStruct((), jnp.int32)
WORDS = ShapeDtypeStruct((KEYS, 2), jnp.uint32)
NETWORK = {"dot_general", "conv_general_dilated"}  # an unrolled matrix product is slower than XLA's
LARGEST_LOOP = 8_000  # instructions; LLVM does not vectorise larger ones, and XLA is faster


class Entries(NamedTuple):
    """What the loops read and write: trees of shapes, or of positions in the table."""

    shared: Any  # arrays of the plan, and params
    keys: Any
    time: Any
    lane: Any
    carry: ScanCarry  # its totals are those of one environment
    action: Any
    done: Any
    transition: Any  # without the action; None unless collected


class NativeRolloutProgram:
    """The loops of a rollout, for any number of environments and steps, and any values of its arrays and params.

    Observations are carried only if something reads them: `keeps_obs`.
    """

    reset_reason = ""
    keeps_obs = True

    def __init__(self, plan: RolloutPlan, key: Any, params: Any):
        arrays, self._static = eqx.partition(plan, eqx.is_array)
        trace = jax.make_jaxpr(lambda key, params: start_rollout(plan, key, params), return_shape=True)
        start, carry = trace(key, params)
        self.shapes = shapes = self._shapes(carry, (arrays, params))
        _check_sums(carry.totals, shapes.carry.totals)
        (at,) = number_leaves(shapes)
        self.at = at = at._replace(lane=LANE_NUMBER)
        self._size = len(jax.tree.leaves(shapes))
        loops = self._loops(shapes, at, draws_for_batch(plan))
        largest = max(loop.builder.instructions for loop in loops.values())
        if largest > LARGEST_LOOP:
            raise Unsupported("program", f"{largest:,} instructions are more than {LARGEST_LOOP:,}")
        emitted = {name: (loop.builder, loop.mask) for name, loop in loops.items()}
        self._assembly = assemble_loops(emitted, {"steps": tuple(loops)})
        self._cost = sum(loop.builder.instructions for loop in loops.values())
        texts = (loop.text for loop in loops.values())
        self.digest = digest(*texts, ADDRESS.sub("", str(start)), plan.restarts, self._assembly)

    @cached_property
    def _steps(self) -> Callable[[int, int, int, int], None]:
        return Library(self._assembly, vectorize=True).loop("steps")

    def compile(self) -> Self:
        """Compile the loops. A stored verdict, found by the digest, may reject them without compiling."""
        assert self._steps
        return self

    def _loops(self, shapes: Entries, at: Entries, for_batch: bool) -> dict[str, LaneLoop]:
        """Actions, steps and restarts are loops of their own: LLVM vectorises the first two."""
        shared = jax.tree.leaves((at.shared, at.keys, at.time))

        def loop(function: Any, select: Any, targets: Any, **options: Any) -> LaneLoop:
            return LaneLoop(function, select(shapes), select(at), targets, shared, **options)

        carry, obs = at.carry, at.carry.obs if self.keeps_obs else None
        return {
            "act": loop(
                self._act,
                lambda e: (e.carry.obs, e.shared, e.keys, e.lane, e.carry.memories),
                (at.action, carry.memories),
                for_batch=for_batch,
            ),
            "advance": loop(
                self._advance,
                lambda e: (e.carry.obs, e.shared, e.keys, e.time, e.lane, e.carry[1:], e.action),
                (carry._replace(obs=obs, memories=None), at.done, at.transition),
            ),
            "restart": loop(
                self._restart,
                lambda e: (e.shared, e.keys, e.lane, e.carry.state),
                (obs, carry.state, carry.memories),
                mask=at.done,
            ),
        }

    def _shapes(self, carry: ScanCarry, shared: Any) -> Entries:
        shared = jax.tree.map(lambda leaf: ShapeDtypeStruct(leaf.shape, leaf.dtype), shared)
        lane = jax.tree.map(member_shape, carry._replace(totals=None))
        size, trace = len(jax.tree.leaves(lane.obs)), partial(jax.make_jaxpr, return_shape=True)
        acted, (action, _) = trace(self._act)(lane.obs, shared, WORDS, NUMBER, lane.memories)
        if network := primitives(acted.jaxpr) & NETWORK:
            raise Unsupported(network.pop(), "a policy with a network runs on XLA")
        stepped, (after, done, transition) = trace(self._advance)(
            lane.obs, shared, WORDS, TIME, NUMBER, lane[1:], action
        )
        self.keeps_obs = any(any(live_inputs(closed.jaxpr)[:size]) for closed in (acted, stepped))
        return Entries(shared, WORDS, TIME, NUMBER, lane._replace(totals=after.totals), action, done, transition)

    def _plan(self, shared: Any) -> tuple[RolloutPlan, Any]:
        arrays, params = shared
        return eqx.combine(arrays, self._static), params

    def _act(self, obs: Any, shared: Any, keys: Any, lane: Any, memory: Any) -> tuple[Any, Any]:
        return act_one(*self._plan(shared), keys[0], lane, memory, obs)

    def _advance(
        self, obs: Any, shared: Any, keys: Any, time: Any, lane: Any, rest: Any, action: Any
    ) -> tuple[ScanCarry, Any, Any]:
        state, _, episodes, totals = rest
        plan, params = self._plan(shared)
        stepped = step_one(plan, params, keys[1], time, lane, obs, state, action, episodes)
        obs, state, episodes, done, summand, transition = stepped
        totals = summand if totals is None else jax.tree.map(lambda total, new: total + new, totals, summand)
        transition = None if transition is None else transition._replace(action=None)
        return ScanCarry(obs if self.keeps_obs else None, state, None, episodes, totals), done, transition

    def _restart(self, shared: Any, keys: Any, lane: Any, state: Any) -> tuple[Any, ...]:
        obs, state, memory = restart_one(*self._plan(shared), keys[0], keys[2], lane, state)
        return obs if self.keeps_obs else None, state, memory

    def run(
        self, plan: RolloutPlan, carry: Any, key: Any, params: Any, start: Any, length: int, first: bool, last: bool
    ) -> tuple[Any, Any]:
        """Some steps of a rollout, as `run_steps`."""
        before, keys, times = _begin(plan, carry, key, params, start, length, first, self.keeps_obs)
        table, rows = LaneTable(self._size), length if plan.collect else 1
        table.set(self.at.keys, np.asarray(keys), stride=keys.nbytes // length)
        table.set(self.at.time, np.asarray(times), stride=times.itemsize)
        shared = _as_words((eqx.filter(plan, eqx.is_array), params))
        jax.tree.map(lambda at, leaf: table.set(at, np.ascontiguousarray(leaf)), self.at.shared, shared)

        def place(at: int, shape: Any) -> NDArray[Any]:
            array = allocate_aligned((rows, plan.num_envs, *physical_shape(shape)), physical_dtype(shape))
            table.set(at, array, stride=array.nbytes // rows if plan.collect else 0)
            return array

        written = self.shapes.transition, self.shapes.action
        transition, action = jax.tree.map(place, (self.at.transition, self.at.action), written)
        lanes = self._place_carry(table, before, plan.num_envs)
        bind_lanes(self._steps, table, range(plan.num_envs), length, self._cost, check_threads(None))()
        if last and not plan.collect:
            lanes = ScanCarry(None, None, None, lanes.episodes, lanes.totals)
        after = _end(plan, self.shapes.carry, before.totals, lanes, last)
        if not plan.collect:
            return after, None
        transition, action = _as_keys(jax.tree.map(jnp.asarray, (transition, action)), written)
        return after, transition._replace(action=action)

    def _place_carry(self, table: LaneTable, carry: ScanCarry, num_envs: int) -> ScanCarry:
        """Copies that the loops change; what is summed over environments, or not read, starts at zero."""
        table.set(self.at.done, np.zeros(num_envs, bool))

        def place(at: int, shape: Any, leaf: Any) -> NDArray[Any]:
            array = np.zeros((num_envs, *physical_shape(shape)), physical_dtype(shape))
            if leaf.size == array.size:
                array[...] = np.reshape(leaf, array.shape)
            table.set(at, array)
            return array

        return jax.tree.map(place, self.at.carry, self.shapes.carry, carry)


def _check_sums(totals: Any, summands: Any) -> None:
    for total, summand in zip(*map(jax.tree.leaves, (totals, summands)), strict=True):
        is_sum = total.shape == summand.shape
        if is_sum and jnp.issubdtype(total.dtype, jnp.inexact):
            raise Unsupported("reduce", "it sums floats over environments, and the order decides the bits")


@eqx.filter_jit
def _begin(
    plan: RolloutPlan, carry: Any, key: Any, params: Any, start: Any, length: int, first: bool, keeps_obs: bool
) -> tuple[ScanCarry, Any, Any]:
    """What is carried into the first step, as arrays without keys; the keys and the times of all steps."""
    times = start + jnp.arange(length, dtype=jnp.int32)
    carry = start_rollout(plan, key, params) if first else carry
    if not keeps_obs:  # they may be images
        carry = carry._replace(obs=jax.tree.map(lambda leaf: jnp.zeros(0, leaf.dtype), carry.obs))
    return _as_words((carry, step_keys(key, times), times))


@eqx.filter_jit
def _end(plan: RolloutPlan, shapes: ScanCarry, totals: Any, lanes: ScanCarry, last: bool) -> ScanCarry | Rollout:
    def add(total: Any, sums: Any) -> Any:
        if total.size == sums.size:
            return sums.reshape(total.shape)
        return total | sums.any(0) if total.dtype == bool else total + sums.sum(0, dtype=total.dtype)

    lanes = lanes._replace(totals=jax.tree.map(add, totals, lanes.totals))
    if not last:
        return _as_keys(lanes, shapes)
    episodes = None if lanes.episodes is None else lanes.episodes.totals()
    return Rollout(None, lanes.totals, episodes, _as_keys(lanes.obs, shapes.obs) if plan.collect else None)


def _as_words(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: random.key_data(leaf) if is_key(leaf) else leaf, tree)


def _as_keys(tree: Any, shapes: Any) -> Any:
    return jax.tree.map(lambda leaf, shape: random.wrap_key_data(leaf) if is_key(shape) else leaf, tree, shapes)
