"""Scenes for the tests of the plume's parts."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from tropism.plume.fields import Field, Gaussian
from tropism.plume.scene import Agent, Arena, Scene

ARENA = Arena((0.0, 0.0), (127.0, 127.0), None, (128, 128))


def agent(x: Any, y: Any, heading: Any = 0.0, velocity: Any = (0.0, 0.0)) -> Agent:
    """`heading` in degrees."""
    return Agent.at(
        jnp.array([x, y], float),
        jnp.deg2rad(jnp.asarray(heading, float)),
        jnp.asarray(velocity, float),
        jnp.zeros((), bool),
    )


def scene(who: Agent, field: Field | None = None, arena: Arena = ARENA) -> Scene:
    """Still or constant fields only: those without a state."""
    return Scene(who, arena, Gaussian() if field is None else field, ())


def blocking(*cells: tuple[int, int], size: int = 128) -> Arena:
    """An arena with obstacles at these (x, y)."""
    mask = np.zeros((size, size), bool)
    for x, y in cells:
        mask[y, x] = True
    return Arena((0.0, 0.0), (size - 1.0, size - 1.0), jnp.asarray(mask), (size, size))
