"""The native engine of a batch, its comparison with XLA's, and the choice between both."""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tropism.core.compiled.batch import BatchProgram, batch_program_of
from tropism.core.compiled.batch_actions import batch_reader
from tropism.core.compiled.batch_engine import BatchEngine
from tropism.core.compiled.packing import WORD, Layout, viewer
from tropism.core.environment import Environment
from tropism.core.episode import seed_words
from tropism.core.native.batch import NativeBatchProgram
from tropism.core.native.choice import Choice, EngineName, choose, compile_natively
from tropism.core.native.lanes import LaneTable, bind_lanes, check_threads
from tropism.core.native.verdicts import Verdict
from tropism.core.native.verification import FIRST_SEED, first_difference
from tropism.core.transforms.auto_reset import Mode

LANES = 160  # of the comparison with XLA; enough for XLA to gather finished environments
STEPS = 500  # of each lane
ACTIONS = 64  # different batches of actions
RESET_EVERY = 97  # steps


class NativeBatchEngine(BatchEngine):
    """Steps the buffer in place, on several threads where that pays; rendering is inherited."""

    def __init__(self, program: BatchProgram, params: Any, native: NativeBatchProgram, num_threads: int):
        self.program, self.native, self.num_threads = program, native, num_threads
        self.base, self.rows = program.params_layout.write(params), None
        self._buffer = np.zeros(program.layout.size, np.uint32)
        self._table = LaneTable(native.size)
        self._set_slots(native.buffer, program.layout, self._buffer)
        self._set_slots(native.params, program.params_layout, self.base)
        self._set_slots(native.next_params, program.params_layout, self.base)
        self._actions = [
            np.zeros((program.num_envs, *leaf.shape), leaf.dtype) for leaf in jax.tree.leaves(native.action)
        ]
        for position, array in zip(jax.tree.leaves(native.actions), self._actions, strict=True):
            self._table.set(position, array)
        self._table.set(native.restarts, np.zeros(program.num_envs, bool))
        fill = partial(self._actions[0].__setitem__, ...) if len(self._actions) == 1 else self._fill
        self.read_actions = batch_reader(program.env.action_space(params), program.num_envs, fill)
        self._step_all = bind_lanes(native.step, self._table, range(program.num_envs), 1, native.cost, num_threads)

    def _set_slots(self, positions: Any, layout: Layout, words: NDArray[Any]) -> None:
        for position, slot in zip(jax.tree.leaves(positions), layout.slots, strict=True):
            self._table.set(position, words, slot.start * WORD)

    def _fill(self, actions: Any) -> None:
        for target, leaf in zip(self._actions, jax.tree.leaves(actions), strict=True):
            target[...] = leaf

    def viewer(self, slots: Any) -> Callable[[], Any]:
        views = viewer(slots)(self._buffer)
        return lambda: views

    def load(self, words: NDArray[Any]) -> None:
        self._buffer[:] = words

    def set_rows(self, rows: NDArray[Any] | None) -> None:
        self.rows = rows
        self._set_slots(self.native.params, self.program.params_layout, self.base)

    def reset(self, keys: NDArray[Any], seeded: NDArray[Any], mask: NDArray[Any]) -> None:
        for position, array in zip(self.native.reset_arguments, (keys, seeded, mask), strict=True):
            self._table.set(position, np.ascontiguousarray(array))
        self._run_by_params(self.native.reset)

    def step(self, actions: Any) -> None:
        return self._step_all() if self.rows is None else self._run_by_params(self.native.step)

    def _run_by_params(self, loop: Callable[..., None]) -> None:
        """Run a loop over each range of environments with the same params, to which the table then points."""
        rows = self.base[None] if self.rows is None else self.rows
        changes = np.flatnonzero((rows[1:] != rows[:-1]).any(1)) + 1
        for first, end in zip([0, *changes], [*changes, self.program.num_envs], strict=True):
            self._set_slots(self.native.params, self.program.params_layout, rows[first])
            bind_lanes(loop, self._table, range(first, end), 1, self.native.cost, self.num_threads)()


def verify_batch(native: NativeBatchProgram, env: Environment, params: Any, mode: Mode, steps: int = STEPS) -> Verdict:
    """Run both at fixed seeds, and some environments to new episodes in between."""
    program = batch_program_of(env, Layout(params), LANES, mode)
    engines = BatchEngine(program, params), NativeBatchEngine(program, params, native, 1)
    batches = jax.tree.map(np.asarray, env.action_space(params).sample(jax.random.key(0), (ACTIONS, LANES)))
    keys = np.stack([seed_words(FIRST_SEED + lane) for lane in range(LANES)])
    every, rng = np.ones(LANES, bool), np.random.default_rng(0)
    for step in range(steps):
        if step % RESET_EVERY == 0:
            seeded, mask = (every, every) if step == 0 else rng.random((2, LANES)) < 0.5
            for engine in engines:
                engine.reset(keys, seeded, mask)
        actions = jax.tree.map(itemgetter(rng.integers(ACTIONS)), batches)
        for engine in engines:
            engine.step(engine.read_actions(actions))
        if path := first_difference(program.layout, *(np.asarray(engine.words) for engine in engines)):
            return Verdict(False, False, f"{path} in step {step} of a batch")
    return Verdict(True, True)


_natives: dict[Any, tuple[NativeBatchProgram | None, str]] = {}


def choose_batch_engine(env: Environment, params: Any, mode: Mode, engine: EngineName = "auto") -> Choice:
    """The engine that a batch of this environment gets."""

    def find() -> tuple[NativeBatchProgram | None, str]:
        layout = Layout(params)
        key = env, layout.cache_key, mode, bool(jax.config.jax_enable_x64)  # pyright: ignore
        if key not in _natives:
            program, space = batch_program_of(env, layout, LANES, mode), env.action_space(params)
            _natives[key] = compile_natively(env, lambda: NativeBatchProgram(program, space))
        return _natives[key]

    return choose(env, engine, find, lambda native: verify_batch(native, env, params, mode))


def make_batch_engine(
    env: Environment, params: Any, num_envs: int, mode: Mode, engine: EngineName = "auto", num_threads: Any = None
) -> BatchEngine:
    """`num_envs` environments; `num_threads` is for the native engine, by default the number of cores."""
    threads = check_threads(num_threads)
    native = choose_batch_engine(env, params, mode, engine).native
    program = batch_program_of(env, Layout(params), num_envs, mode)
    return BatchEngine(program, params) if native is None else NativeBatchEngine(program, params, native, threads)
