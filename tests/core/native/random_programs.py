"""Runs random small programs natively and compares them with JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from tests.core.native.compiling import compile_native

from tropism.core.native.builder import Unsupported

UNARY = [jnp.sin, jnp.exp, jnp.log1p, jnp.tanh, jnp.floor, jnp.abs, jnp.sqrt, jnp.flip, jnp.cumsum, lambda x: -x]
BINARY = [
    lax.add,
    lax.sub,
    lax.mul,
    lax.div,
    lax.rem,
    lax.max,
    lax.min,
    jnp.arctan2,
    lambda x, y: jnp.where(x < y, x, y),
]
INTEGER = [lax.add, lax.mul, lax.div, lax.rem, lax.shift_left, lax.shift_right_logical, lax.bitwise_xor, lax.max]
INDEX = [
    lambda x, i: x[i],
    lambda x, i: x.at[i].set(x * 2),
    lambda x, i: x.at[i].add(x),
    lambda x, i: x.at[i].get(mode="fill"),
    lambda x, i: lax.dynamic_update_slice(x, x[:2], (i[0],)) + lax.dynamic_slice(x, (i[1],), (1,)),
    lambda x, i: lax.cond(i[0] > 0, lambda: x, lambda: x[::-1]),
    lambda x, i: x + jax.random.uniform(jax.random.fold_in(jax.random.key(0), i[0]), x.shape),
]
SIZE, LENGTH = 4, 8
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, 1e-40, 3e38]


def run(count: int, first: int = 0) -> int:
    """How many of `count` programs compiled; the others are unsupported. Integers must be equal to JAX's."""
    compiled = 0
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        program = random_program(rng)
        inputs = [random_floats(rng), rng.integers(-(2**31), 2**31, SIZE).astype(np.int32)]
        try:
            native = compile_native(program, *inputs)
        except Unsupported:
            continue
        compiled += 1
        for _ in range(5):
            inputs = [random_floats(rng), rng.integers(-6, 6, SIZE).astype(np.int32)]
            floats, integers = native(*inputs)
            expected = program(*inputs)
            np.testing.assert_array_equal(integers, expected[1], str(seed))
            assert floats.shape == expected[0].shape
    return compiled


def random_floats(rng: np.random.Generator) -> Any:
    values = rng.normal(0, 10, SIZE).astype(np.float32)
    values[rng.integers(SIZE)] = rng.choice(SPECIAL)
    return values


def random_program(rng: np.random.Generator) -> Any:
    """A function of floats and integers; which operations it takes depends on the generator alone."""
    plan = [(rng.integers(4), *rng.integers(100, size=3)) for _ in range(LENGTH)]

    def program(x: Any, i: Any) -> tuple[Any, Any]:
        floats, integers = [jnp.asarray(x)], [jnp.asarray(i)]
        for kind, operation, first, second in plan:
            a, b = floats[first % len(floats)], floats[second % len(floats)]
            n, m = integers[first % len(integers)], integers[second % len(integers)]
            if kind == 0:
                floats.append(UNARY[operation % len(UNARY)](a))
            elif kind == 1:
                floats.append(BINARY[operation % len(BINARY)](a, b))
            elif kind == 2:
                integers.append(INTEGER[operation % len(INTEGER)](n, m))
            else:
                floats.append(INDEX[operation % len(INDEX)](a, n))
        return floats[-1], integers[-1]

    return program
