"""The native engine of a session: machine code on the same packed buffer as the XLA engine."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tropism.core.compiled.packing import WORD, Slot
from tropism.core.compiled.program import program_of
from tropism.core.environment import Environment
from tropism.core.episode import Timestep
from tropism.core.native.choice import Choice, EngineName, choose_engine
from tropism.core.native.memory import ProgramMemory
from tropism.core.native.program import KEY_WORDS
from tropism.core.session.compiled import OUTCOME, XlaEngine, action_reader
from tropism.core.spaces import Box, Discrete, Space


class NativeEngine(XlaEngine):
    """Steps in place; rendering and everything else is inherited from the XLA engine."""

    def __init__(self, env: Environment, params: Any, choice: Choice):
        assert choice.native is not None
        self.native = choice.native
        self._native_reset = choice.native.reset if choice.native_reset else None
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

    def _set_buffer(self, buffer: Any) -> None:
        self._memory.words[:] = buffer

    def _reset(self, key: NDArray[Any]) -> None:
        self._buffer = self._memory.words
        if self._native_reset is None:
            return self._set_buffer(self.program.reset(key, self._params))
        self._memory.input[:KEY_WORDS] = key
        return self._native_reset(self._table)

    def _reset_next(self) -> None:
        if self._native_reset is None:
            return self._set_buffer(self.program.reset_next(self._buffer, self._params))
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


def make_compiled_engine(env: Environment, params: Any, engine: EngineName) -> XlaEngine:
    """The engine of a pure environment."""
    choice = choose_engine(env, params, engine)
    return XlaEngine(env, params) if choice.native is None else NativeEngine(env, params, choice)
