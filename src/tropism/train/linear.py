"""A linear layer with orthogonal weights."""

import itertools
import math
from typing import Any

import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Float

from tropism.core.module import Module

ITERATIONS = 50  # until a matrix is orthogonal: each multiplies the smallest singular value by about 1.5


class Linear(Module):
    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]

    def __init__(self, normals: Float[Array, "out in"], gain: float):
        self.weight = gain * orthogonalize(normals)
        self.bias = jnp.zeros(len(normals))

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        return x @ self.weight.T + self.bias  # in this order a batch stays in rows, without a transpose


def normal_matrices(key: Any, shapes: tuple[tuple[int, int], ...]) -> list[Float[Array, "out in"]]:
    """Matrices of normal samples from a single draw, because each draw takes time to compile."""
    sizes = [math.prod(shape) for shape in shapes]
    samples = jnp.split(random.normal(key, (sum(sizes),)), list(itertools.accumulate(sizes[:-1])))
    return [numbers.reshape(shape) for numbers, shape in zip(samples, shapes, strict=True)]


def orthogonalize(normals: Float[Array, "out in"]) -> Float[Array, "out in"]:
    """The nearest matrix with orthonormal rows or columns, whichever are fewer (Saxe et al. 2014).

    Iterated products (Björck and Bowie 1971) move all singular values between 0 and √3 towards 1. A decomposition
    would take half a second longer to compile.
    """
    wide = normals.shape[0] < normals.shape[1]
    tall = normals.T if wide else normals
    first = tall / jnp.linalg.norm(tall)
    q = lax.fori_loop(0, ITERATIONS, lambda _, q: 1.5 * q - 0.5 * q @ (q.T @ q), first)
    return q.T if wide else q
