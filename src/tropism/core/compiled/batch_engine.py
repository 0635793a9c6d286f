"""Runs a batch program: one packed buffer, one dispatch per step of all environments."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tropism.core.compiled.batch import BatchProgram, batch_device
from tropism.core.compiled.batch_actions import batch_reader
from tropism.core.compiled.packing import viewer


class BatchEngine:
    """The environments of a batch, on XLA.

    `base` are the packed params. `rows` are those of each running episode, if options changed some.
    """

    def __init__(self, program: BatchProgram, params: Any):
        self.program = program
        self.base: NDArray[Any] = program.params_layout.write(params)
        self.rows: NDArray[Any] | None = None
        self.read_actions = batch_reader(program.env.action_space(params), program.num_envs)
        self._next_params = self._params = jax.device_put(self.base, batch_device())
        self._buffer: Any = np.zeros(program.layout.size, np.uint32)

    @property
    def words(self) -> memoryview:
        """The packed buffer, valid until the next step or reset."""
        return memoryview(self._buffer)

    def viewer(self, slots: Any) -> Callable[[], Any]:
        """A function that returns this tree of slots as arrays, valid until the next step or reset."""
        view = viewer(slots)
        return lambda: view(self.words)

    def load(self, words: NDArray[Any]) -> None:
        """Continue from the buffer of another engine."""
        self._buffer = words

    def set_rows(self, rows: NDArray[Any] | None) -> None:
        self.rows = rows
        self._params = self._next_params if rows is None else jax.device_put(rows, batch_device())

    def reset(self, keys: NDArray[Any], seeded: NDArray[Any], mask: NDArray[Any]) -> None:
        """Start episodes in the environments of `mask`: with these keys where `seeded`, else the next ones."""
        self._buffer = self.program.reset(self._buffer, keys, seeded, mask, self._params)

    def step(self, actions: Any) -> None:
        """Step all environments with the actions that `read_actions` returned."""
        self._buffer = self.program.step(self._buffer, actions, self._params, self._next_params)

    def render(self) -> NDArray[Any] | None:
        """A picture of each environment; None if it has none."""
        arrays = self._buffer, self.base if self.rows is None else self.rows
        pictures = self.program.render(*jax.device_put(arrays, batch_device()))
        return None if pictures is None else np.array(pictures)
