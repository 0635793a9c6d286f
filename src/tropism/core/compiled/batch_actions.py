"""Checks and casts the actions of a vector, and writes them where the compiled step reads them."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tropism.core.compiled.batch import batch_device
from tropism.core.session.compiled import action_reader
from tropism.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from tropism.core.spaces.composite import stack_space
from tropism.errors import ValidationError

ALIGNMENT = 64  # bytes; required by XLA for host memory that it reads in place


class ActionBuffer:
    """Host memory that the compiled step reads in place: passing an array costs ten times as much as filling one.

    It may be filled again after the step's result has been read. If JAX copies it, arrays are passed instead.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any):
        self._host = allocate_aligned(shape, np.dtype(dtype))
        self._device = jax.device_put(self._host, batch_device())
        self.shared = self._device.unsafe_buffer_pointer() == self._host.ctypes.data

    def fill(self, values: NDArray[Any]) -> Any:
        """The array to call the step with."""
        if not self.shared:
            return values.astype(self._host.dtype)
        self._host[...] = values
        return self._device


def allocate_aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An uninitialized array that JAX can read in place or take over without a copy."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def batch_reader(space: Space, size: int, fill: Callable[[Any], Any] | None = None) -> Callable[[Any], Any]:
    """A function that checks and casts a batch of actions for the step; an error names the first invalid one.

    `fill` writes them where the step reads them; by default, for XLA.
    """
    whole = stack_space(space, size)
    coerce = action_reader(whole)

    def coerce_batch(actions: Any) -> Any:
        try:
            return coerce(actions)
        except ValidationError as error:
            raise first_error(space, size, actions) or error from None

    if fill is None:
        if not isinstance(whole, Box | MultiBinary | MultiDiscrete):
            return coerce_batch
        fill = ActionBuffer(whole.shape, jax.dtypes.canonicalize_dtype(whole.dtype)).fill
    if isinstance(space, Discrete):
        return _discrete_batch_reader(space, size, coerce_batch, fill)
    return lambda actions: fill(coerce_batch(actions))


def _discrete_batch_reader(
    space: Discrete, size: int, coerce_batch: Callable[[Any], Any], fill: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    shape, start, n, int64, uint64 = (size,), space.start, space.n, np.dtype(np.int64), np.dtype(np.uint64)

    def read(actions: Any) -> Any:
        if type(actions) is not np.ndarray or actions.dtype != int64 or actions.shape != shape:
            return fill(coerce_batch(actions))
        # As unsigned, a negative number is a large one, so one comparison checks both bounds.
        unsigned = (actions - start if start else actions).view(uint64)
        return fill(actions if unsigned[unsigned.argmax()] < n else coerce_batch(actions))

    return read


def first_error(space: Space, size: int, actions: Any) -> ValidationError | None:
    """The error of the first action that is not in `space`, or of a batch of the wrong length."""
    if isinstance(space, Dict | Tuple):
        return None
    try:
        rows = list(actions)
    except TypeError:
        rows = []
    if len(rows) != size:
        return ValidationError("actions", actions, f"{size} actions in {space!r}")
    for number, action in enumerate(rows):
        try:
            space.coerce(action, f"actions[{number}]")
        except ValidationError as error:
            return error
    return None
