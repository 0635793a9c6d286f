"""A linear layer with orthogonal weights."""

import itertools
import math
from typing import Any

import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Float

from tropism.core.module import Module

ROUNDS = 50  # that make a matrix orthogonal: the smallest singular value grows by a half in each


class Linear(Module):
    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]

    def __init__(self, drawn: Float[Array, "out in"], gain: float):
        self.weight = gain * orthogonal(drawn)
        self.bias = jnp.zeros(len(drawn))

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        return x @ self.weight.T + self.bias  # in this order a batch stays in rows, without a transpose


def normals(key: Any, shapes: tuple[tuple[int, int], ...]) -> list[Float[Array, "out in"]]:
    """Matrices of normal numbers from a single draw, because each draw takes time to compile."""
    sizes = [math.prod(shape) for shape in shapes]
    drawn = jnp.split(random.normal(key, (sum(sizes),)), list(itertools.accumulate(sizes[:-1])))
    return [numbers.reshape(shape) for numbers, shape in zip(drawn, shapes, strict=True)]


def orthogonal(drawn: Float[Array, "out in"]) -> Float[Array, "out in"]:
    """Normal numbers as the nearest matrix with orthonormal rows or columns, whichever are fewer (Saxe et al. 2014).

    By products alone (Björck and Bowie 1971): each takes all singular values nearer to 1, from anywhere between 0
    and √3. A decomposition would take half a second longer to compile.
    """
    wide = drawn.shape[0] < drawn.shape[1]
    tall = drawn.T if wide else drawn
    first = tall / jnp.linalg.norm(tall)
    q = lax.fori_loop(0, ROUNDS, lambda _, q: 1.5 * q - 0.5 * q @ (q.T @ q), first)
    return q.T if wide else q
