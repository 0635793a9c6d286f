"""Scenes for the tests of plume parts."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from tropism.plume.fields import Field, Gaussian
from tropism.plume.scene import AgentPose, Arena, Scene

ARENA = Arena((0.0, 0.0), (127.0, 127.0), None, (128, 128))


def agent(x: Any, y: Any, heading: Any = 0.0, velocity: Any = (0.0, 0.0)) -> AgentPose:
    """`heading` in degrees."""
    return AgentPose.at(
        jnp.array([x, y], float),
        jnp.deg2rad(jnp.asarray(heading, float)),
        jnp.asarray(velocity, float),
        jnp.zeros((), bool),
    )


def scene(pose: AgentPose, field: Field | None = None, arena: Arena = ARENA) -> Scene:
    """Only for fields without a state."""
    return Scene(pose, arena, Gaussian() if field is None else field, ())


def blocking(*cells: tuple[int, int], size: int = 128) -> Arena:
    """An arena with obstacles at these (x, y)."""
    mask = np.zeros((size, size), bool)
    for x, y in cells:
        mask[y, x] = True
    return Arena((0.0, 0.0), (size - 1.0, size - 1.0), jnp.asarray(mask), (size, size))
