"""Compiles JAX functions natively, for tests of the rules."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tropism.core.native.jit import Library
from tropism.core.native.llvm import assemble
from tropism.core.native.program import emit


def compile_native(function: Callable[..., Any], *examples: Any) -> Callable[..., list[Any]]:
    """The native form of a function of arrays with the shapes and dtypes of the examples; it returns a list."""
    closed = jax.make_jaxpr(function)(*examples)
    count = len(examples)
    outputs = [np.zeros(aval.shape, aval.dtype) for aval in closed.out_avals]
    builder = emit(closed, range(count, count + len(outputs)))
    run = Library(assemble({"run": builder})).function("run")

    def call(*arguments: Any) -> list[Any]:
        inputs = [
            np.ascontiguousarray(x, np.asarray(example).dtype) for x, example in zip(arguments, examples, strict=True)
        ]
        table = np.array([array.ctypes.data for array in (*inputs, *outputs)], np.uintp)
        run(table.ctypes.data)
        return [output.copy() for output in outputs]

    return call


def assert_same_bits(native: Any, expected: Any, note: str) -> None:
    """Equal bit for bit; all NaNs are equal."""
    native, expected = np.asarray(native), np.asarray(expected)
    assert native.dtype == expected.dtype, note
    assert native.shape == expected.shape, note
    same = native.view(np.uint8).tobytes() == expected.view(np.uint8).tobytes() if native.ndim else False
    if same:
        return
    nan = (native != native) & (expected != expected)
    unsigned = np.dtype(f"u{native.dtype.itemsize}")
    differs = (np.atleast_1d(native).view(unsigned) != np.atleast_1d(expected).view(unsigned)) & ~np.atleast_1d(nan)
    assert not differs.any(), f"{note}: native {native} instead of {expected}"
