"""PixelGridWorld: GridWorld observed as an image."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, UInt8

from tropism.core.registry import preset
from tropism.core.spaces import Image
from tropism.core.spaces.space import check_count
from tropism.drawing import canvas as draw
from tropism.envs.grid_world import Grid

CELL = 8  # pixels
AGENT, GOAL = (255, 255, 255), (0, 255, 0)


@preset("ppo", total_steps=30_000, num_steps=64)
class PixelGridWorld(Grid):
    """The rules are GridWorld's; only the observation differs.

    Reward: `goal_reward` for the step that reaches the goal, `step_reward` for every other one.

    Ends: terminated at the goal; truncated after `max_steps` steps.
    """

    def __init__(self, size: Any = 5):
        self.size = check_count("size", size, 2)

    def observation(self, state: Any) -> UInt8[Array, "height width 3"]:
        cell = jnp.arange(self.size * self.size).reshape(self.size, self.size, 1)
        goal = jnp.where(cell == self.size * self.size - 1, jnp.array(GOAL, jnp.uint8), 0)
        cells = jnp.where(cell == state.row * self.size + state.col, jnp.array(AGENT, jnp.uint8), goal)
        return draw.enlarge(cells, CELL).astype(jnp.uint8)

    def observation_space(self, params: Any) -> Image:
        return Image(self.size * CELL, self.size * CELL, 3)
