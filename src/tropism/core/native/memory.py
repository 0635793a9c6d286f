"""The memory that native functions read and write."""

from typing import Any

import numpy as np

from tropism.core.native.program import KEY_WORDS, NativeProgram


class ProgramMemory:
    """Buffer, input and params at fixed addresses, and the table of pointers to them."""

    def __init__(self, native: NativeProgram, packed: tuple[Any, ...]):
        self.layout = native.action_layout
        self.large_types = [slot.dtype for slot in native.program.params_layout.large.slots]
        self.words = np.zeros(native.program.layout.size, np.uint32)
        self.input = np.zeros(max(self.layout.size, KEY_WORDS), np.uint32)
        self.set_params(packed)

    def set_params(self, packed: tuple[Any, ...]) -> None:
        words, *large = packed
        self.params = (
            np.array(words, np.uint32),
            *(np.ascontiguousarray(x, dtype) for x, dtype in zip(large, self.large_types, strict=True)),
        )
        arrays = (self.words, self.input, *self.params)
        self.table = np.array([array.ctypes.data for array in arrays], np.uintp)
        self.address: int = self.table.ctypes.data

    def set_action(self, action: Any) -> None:
        self.input[: self.layout.size] = self.layout.write(action)

    def copy(self, native: NativeProgram) -> "ProgramMemory":
        """The same content at other addresses; params, which are never written, are shared."""
        twin = ProgramMemory(native, self.params)
        twin.words[:] = self.words
        return twin
