"""The native engine of a session, its comparison with XLA's, and the choice between the two."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tropism.core.compiled.packing import WORD, Slot
from tropism.core.compiled.program import program_of
from tropism.core.environment import Environment
from tropism.core.episode import Timestep
from tropism.core.native.choice import Choice, EngineName, choose, compile_natively
from tropism.core.native.memory import ProgramMemory
from tropism.core.native.program import KEY_WORDS, NativeProgram
from tropism.core.native.verdicts import Verdict
from tropism.core.native.verification import FIRST_SEED, first_difference, sample_actions
from tropism.core.session.compiled import OUTCOME, XlaEngine, action_reader
from tropism.core.spaces import Box, Discrete, Space

STEPS = 10_000  # of the comparison with XLA; some environments differ in fewer than one step of 100
ACTIONS = 128  # different ones, in random order
RESET_EVERY = 997  # also in the middle of an episode, so that long ones start from several states


class NativeEngine(XlaEngine):
    """Runs machine code in place on the packed buffer; rendering and everything else is inherited."""

    def __init__(self, env: Environment, params: Any, native: NativeProgram, native_reset: bool):
        self.native = native
        self._native_reset = native.reset if native_reset else None
        self._memory = ProgramMemory(self.native, program_of(env, params).params_layout.write(params))
        self._table = self._memory.address
        super().__init__(env, params)
        self._space = env.action_space(params)
        self._connect()

    def _connect(self) -> None:
        """Refresh the references into this engine's memory."""
        self._buffer = self._memory.words
        self._words = self._memory.words.data
        self._params, self._table = self._memory.params, self._memory.address
        self._write_action = _action_writer(self._space, self._memory)
        self._copy_obs = self._obs_reader()

    def _obs_reader(self) -> Callable[[], Any]:
        slot, words, read = self.program.timestep.obs, self._words, self._read_obs
        if isinstance(slot, Slot) and slot.shape:
            return np.ndarray(slot.shape, slot.dtype, words, slot.start * WORD).copy
        return lambda: read(words)

    def _set_packed_params(self, packed: tuple[Any, ...]) -> None:
        self._memory.set_params(packed)
        self._params, self._table = self._memory.params, self._memory.address

    def set_words(self, words: Any) -> None:
        self._memory.words[:] = words

    def _reset(self, key: NDArray[Any]) -> None:
        self._buffer = self._memory.words
        if self._native_reset is None:
            return self.set_words(self.program.reset(key, self._params))
        self._memory.input[:KEY_WORDS] = key
        return self._native_reset(self._table)

    def _reset_next(self) -> None:
        if self._native_reset is None:
            return self.set_words(self.program.reset_next(self._buffer, self._params))
        self.native.next_key(self._table)
        return self._native_reset(self._table)

    def step(self, action: Any) -> Timestep:
        self._write_action(action)
        self.native.step(self._table)
        words = self._words
        reward, terminated, truncated = OUTCOME.unpack_from(words, self._outcome_at)
        # Faster than the constructor, which is a Python function.
        return tuple.__new__(Timestep, (self._copy_obs(), reward, terminated, truncated, self._read_info(words)))

    def new_like(self) -> Self:
        twin = super().new_like()
        twin._memory = self._memory.copy(self.native)
        twin._connect()
        return twin


def _action_writer(space: Space, memory: ProgramMemory) -> Callable[[Any], None]:
    """A function that checks an action and writes it where the step reads it."""
    read = action_reader(space)
    if isinstance(space, Discrete):
        return _discrete_writer(space, read, memory)
    if not isinstance(space, Box):
        return lambda action: memory.set_action(read(action))
    target = np.ndarray(space.shape, memory.layout.slots[0].dtype, memory.input)

    def write(action: Any) -> None:
        target[...] = read(action)

    return write


def _discrete_writer(space: Discrete, read: Callable[[Any], int], memory: ProgramMemory) -> Callable[[Any], None]:
    first, end, cell = space.start, space.start + space.n, memory.input.view(np.int32).data

    def write(action: Any) -> None:
        cell[0] = action if type(action) is int and first <= action < end else read(action)

    return write


def verify(native: NativeProgram, params: Any, steps: int = STEPS) -> Verdict:
    """Run both engines from a fixed seed; after a reset that differs, steps are compared from XLA's state."""
    env, layout = native.program.env, native.program.layout
    xla, own = XlaEngine(env, params), NativeEngine(env, params, native, native.reset is not None)
    actions = sample_actions(env.action_space(params), ACTIONS)
    order = np.random.default_rng(0).integers(0, ACTIONS, STEPS)
    ended, resets, reset_reason = True, 0, ""
    for count in range(steps):
        if ended:
            for engine in (xla, own):
                engine.reset_next(params, {}) if count else engine.reset(FIRST_SEED, params, {})
            if path := first_difference(layout, xla.words, own.words):
                reset_reason = reset_reason or f"{path} in reset {resets}"
                own.set_words(xla.words)
            resets += 1
        action = actions[order[count % STEPS]]
        own.step(action)
        _, _, terminated, truncated, _ = xla.step(action)
        if path := first_difference(layout, xla.words, own.words):
            return Verdict(False, not reset_reason, f"{path} in step {count}")
        ended = terminated or truncated or count % RESET_EVERY == RESET_EVERY - 1
    return Verdict(True, not reset_reason, reset_reason)


def choose_engine(env: Environment, params: Any, engine: EngineName = "auto") -> Choice:
    """The engine that a session of this environment gets."""

    def find() -> tuple[NativeProgram | None, str]:
        program = program_of(env, params)
        if program.native_form is None:
            program.native_form = compile_natively(env, lambda: NativeProgram(program, env.action_space(params)))
        return program.native_form

    return choose(env, engine, find, lambda native: verify(native, params))


def make_compiled_engine(env: Environment, params: Any, engine: EngineName) -> XlaEngine:
    """The engine of a pure environment."""
    choice = choose_engine(env, params, engine)
    if choice.native is None:
        return XlaEngine(env, params)
    return NativeEngine(env, params, choice.native, choice.native_reset)
