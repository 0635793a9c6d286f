"""Estimates what a traced function costs, from its jaxpr."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

HASH = 100  # operations for one random word


class Cost(NamedTuple):
    """Elements computed, with repetitions; and bytes of all intermediate values, which loops use again."""

    operations: float
    bytes: float


def estimate(function: Callable[..., Any], *args: Any) -> Cost:
    """The cost of a call with arguments of these shapes and dtypes."""
    closed = jax.make_jaxpr(lambda *args: function(*args))(*args)  # a method may belong to an object without a hash
    return _cost(closed.jaxpr)


def member_shape(leaf: Any) -> jax.ShapeDtypeStruct:
    """The shape and dtype of one member of a batch."""
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)


def _cost(jaxpr: Any) -> Cost:
    operations = memory = 0.0
    for equation in jaxpr.eqns:
        inner = [_cost(body) for body in _bodies(equation.params)]
        repetitions = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        operations += repetitions * sum(cost.operations for cost in inner)
        memory += sum(cost.bytes for cost in inner)
        if not inner:
            outputs = [var.aval for var in equation.outvars if hasattr(var.aval, "shape")]
            items = sum(math.prod(aval.shape) for aval in outputs)
            operations += items * (HASH if equation.primitive.name == "random_bits" else 1)
            memory += sum(math.prod(aval.shape) * aval.dtype.itemsize for aval in outputs)
    return Cost(operations, memory)


def primitives(jaxpr: Any) -> set[str]:
    """The names of all primitives, also inside calls and loops."""
    inner = (primitives(body) for equation in jaxpr.eqns for body in _bodies(equation.params))
    return {equation.primitive.name for equation in jaxpr.eqns}.union(*inner)


def _bodies(params: dict[str, Any]) -> list[Any]:
    """The jaxprs inside an equation: of a call, a loop or the branches of a conditional."""
    leaves = jax.tree.leaves(list(params.values()), is_leaf=lambda value: hasattr(value, "eqns"))
    return [getattr(leaf, "jaxpr", leaf) for leaf in leaves if hasattr(leaf, "eqns")]
