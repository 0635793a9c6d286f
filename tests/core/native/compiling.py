"""Compiles JAX functions natively, for tests of the rules."""

from collections.abc import Callable
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tropism.core.fused.graph import LANE, GraphBuilder, reachable, sort_nodes
from tropism.core.fused.operations import evaluate_nodes
from tropism.core.native.jit import Library
from tropism.core.native.llvm import assemble
from tropism.core.native.program import emit
from tropism.core.native.scalarize import as_scalars, evaluate, load_all

same_xla = pytest.mark.skipif(
    not metadata.version("jaxlib").startswith("0.10."), reason="the rules have the bits of XLA in jaxlib 0.10"
)


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


def compile_fused(function: Callable[..., Any], *examples: Any) -> Callable[..., list[Any]]:
    """The same through the graph of the fused engine, evaluated for two lanes as inside a kernel."""
    closed = jax.make_jaxpr(function)(*examples)
    b, inputs = GraphBuilder(), list[Any]()
    for example in map(np.asarray, examples):
        first = sum(array.size for array in inputs)
        nodes = [b.input(LANE, first + i, example.dtype) for i in range(example.size)]
        inputs.append(as_scalars(nodes, example.shape))
    results = [load_all(b, result) for result in evaluate(b, closed.jaxpr, closed.consts, inputs)]
    nodes = sort_nodes(reachable(node for result in results for node in result.reshape(-1)))

    @jax.jit
    def run(scalars: list[Any]) -> list[Any]:
        values = {node: jnp.stack([scalars[node.detail]] * 2) for node in nodes if node.name == "input"}
        evaluate_nodes(nodes, values, {})
        return [[jnp.broadcast_to(values[node], (2,))[1] for node in result.reshape(-1)] for result in results]

    def call(*arguments: Any) -> list[Any]:
        arrays = [np.asarray(x, np.asarray(example).dtype) for x, example in zip(arguments, examples, strict=True)]
        outputs = run([item for array in arrays for item in array.reshape(-1)])
        avals = closed.out_avals
        return [np.array(out, aval.dtype).reshape(aval.shape) for out, aval in zip(outputs, avals, strict=True)]

    return call


def assert_close(fused: Any, expected: Any, note: str) -> None:
    """Equal to rounding; whole numbers and booleans exactly."""
    fused, expected = np.asarray(fused), np.asarray(expected)
    assert (fused.dtype, fused.shape) == (expected.dtype, expected.shape), note
    tolerance = 1e-5 if fused.dtype.kind == "f" else 0
    np.testing.assert_allclose(fused, expected, tolerance, tolerance and 1e-37, err_msg=note)


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
