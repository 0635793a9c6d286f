"""Calls, branches, loops and random numbers."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry2x32_p, threefry_prng_impl

from tropism.core.native.builder import Builder, Scalar, Unsupported
from tropism.core.native.rules.elementwise import dtype_of
from tropism.core.native.scalarize import (
    Scalars,
    Value,
    as_scalars,
    evaluate,
    load_all,
    map_scalars,
    physical_dtype,
    rule,
    trace_into,
)

BODIES = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "remat2": "jaxpr",
    "custom_vmap_call": "call",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
WORD = np.dtype(np.uint32)


@rule(*BODIES, reads_memory=True)
def call(b: Builder, equation: Any, *inputs: Value) -> list[Value]:
    body = equation.params[BODIES[equation.primitive.name]]
    return evaluate(b, getattr(body, "jaxpr", body), getattr(body, "consts", ()), inputs)


@rule("cond", reads_memory=True)
def cond(b: Builder, equation: Any, which: Value, *inputs: Value) -> list[Value]:
    """All branches are computed, and one is selected: they have no effects."""
    index = dtype_of(equation)
    results = [evaluate(b, branch.jaxpr, branch.consts, inputs) for branch in equation.params["branches"]]
    (number,) = load_all(b, which).reshape(-1)
    outputs: list[Value] = []
    for position, var in enumerate(equation.outvars):
        cases = [load_all(b, result[position]) for result in results]
        selected = cases[-1]
        for case in range(len(cases) - 2, -1, -1):
            chosen = number if index.kind == "b" else b.compare("le", index, number, b.constant(case, index))
            pick = partial(_pick, b, physical_dtype(var.aval), chosen, index.kind == "b")
            selected = map_scalars(pick, cases[case], selected)
        outputs.append(selected)
    return outputs


def _pick(b: Builder, dtype: Any, chosen: Scalar, swapped: bool, case: Scalar, other: Scalar) -> Scalar:
    return b.select(chosen, dtype, other, case) if swapped else b.select(chosen, dtype, case, other)


@rule("scan", reads_memory=True)
def scan(b: Builder, equation: Any, *inputs: Value) -> list[Value]:
    """Unrolled; a long one exceeds the limit on instructions."""
    params = equation.params
    if "num_consts" not in params:
        raise Unsupported("scan", "its form in this version of JAX")
    body, first, length = params["jaxpr"], params["num_consts"], params["length"]
    fixed, carry = inputs[:first], list(inputs[first : first + params["num_carry"]])
    sequences = [load_all(b, x) for x in inputs[first + params["num_carry"] :]]
    rows: dict[int, list[Scalars]] = {}
    for step in reversed(range(length)) if params["reverse"] else range(length):
        current = [x[step] if x[step].__class__ is np.ndarray else as_scalars([x[step]], ()) for x in sequences]
        outputs = evaluate(b, body.jaxpr, body.consts, [*fixed, *carry, *current])
        carry = outputs[: params["num_carry"]]
        rows[step] = [load_all(b, output) for output in outputs[params["num_carry"] :]]
    if not length:
        raise Unsupported("scan", "a loop of length 0")
    return [*carry, *(np.stack(column) for column in zip(*(rows[step] for step in range(length)), strict=True))]


@rule("threefry2x32")
def threefry(b: Builder, equation: Any, *arrays: Scalars) -> list[Scalars]:
    pairs = map_scalars(lambda *words: _threefry(b, *words), *arrays)
    return [map_scalars(lambda pair, part=part: pair[part], pairs) for part in (0, 1)]


def _threefry(b: Builder, k0: Scalar, k1: Scalar, x0: Scalar, x1: Scalar) -> tuple[Scalar, Scalar]:
    def op(name: str, x: Scalar, y: Scalar | int) -> Scalar:
        return b.op(name, WORD, x, b.constant(y, WORD) if isinstance(y, int) else y)

    keys = (k0, k1, op("xor", op("xor", k0, k1), 0x1BD11BDA))
    x0, x1 = op("add", x0, k0), op("add", x1, k1)
    for block in range(5):
        for rotation in ROTATIONS[block % 2]:
            x0 = op("add", x0, x1)
            x1 = op("xor", op("or", op("shl", x1, rotation), op("lshr", x1, 32 - rotation)), x0)
        x0 = op("add", x0, keys[(block + 1) % 3])
        x1 = op("add", op("add", x1, keys[(block + 2) % 3]), block + 1)
    return x0, x1


@rule("random_seed")
def random_seed(b: Builder, equation: Any, seeds: Scalars) -> list[Value]:
    return _random(b, equation, threefry_prng_impl.seed, seeds)


@rule("random_fold_in")
def random_fold_in(b: Builder, equation: Any, keys: Scalars, data: Scalars) -> list[Value]:
    return _random(b, equation, threefry_prng_impl.fold_in, keys, data)


@rule("random_split")
def random_split(b: Builder, equation: Any, keys: Scalars) -> list[Value]:
    return _random(b, equation, lambda key: threefry_prng_impl.split(key, equation.params["shape"]), keys)


@rule("random_bits")
def random_bits(b: Builder, equation: Any, keys: Scalars) -> list[Value]:
    width, shape = equation.params["bit_width"], equation.params["shape"]
    if b.batch_lane is not None:
        return _batch_bits(b, equation, keys)
    return _random(b, equation, lambda key: threefry_prng_impl.random_bits(key, width, shape), keys)


def _batch_bits(b: Builder, equation: Any, key: Scalars) -> list[Value]:
    """The bits of one environment in a draw for the batch, whose elements JAX numbers one after another."""
    width, shape = equation.params["bit_width"], equation.params["shape"]
    if width > 32 or equation.invars[0].aval.shape or not jax.config.jax_threefry_partitionable:  # pyright: ignore
        raise Unsupported("random_bits", "a draw for the batch whose elements are not numbered")

    def draw(key: Any, lane: Any) -> Any:
        numbers = lane * math.prod(shape) + jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
        zeros = jnp.zeros_like(numbers)
        high, low = threefry2x32_p.bind(*(jnp.broadcast_to(word, shape) for word in key), zeros, numbers)
        return (high ^ low).astype(f"uint{width}")

    lane = as_scalars([b.batch_lane], ())
    return trace_into(b, draw, [equation.invars[0].aval, jax.ShapeDtypeStruct((), WORD)], [key, lane])


def _random(b: Builder, equation: Any, function: Callable[..., Any], *inputs: Scalars) -> list[Value]:
    for _ in equation.invars[0].aval.shape:
        function = jax.vmap(function)
    return trace_into(b, function, [var.aval for var in equation.invars], inputs)
