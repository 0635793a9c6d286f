"""PixelGridWorld: GridWorld observed as an image."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, UInt8

from tropism.core.adapters.language import Language
from tropism.core.environment import Environment, Info
from tropism.core.registry import preset
from tropism.core.spaces import Discrete, Image
from tropism.drawing import canvas as draw
from tropism.envs.grid_world import ACTIONS, GridWorld, GridWorldParams, GridWorldState

CELL = 8  # pixels
AGENT, GOAL = (255, 255, 255), (0, 255, 0)


@preset("ppo", total_steps=30_000, num_steps=64)
class PixelGridWorld(Environment):
    """The rules are GridWorld's; only the observation differs.

    Reward: `goal_reward` for the step that reaches the goal, `step_reward` for every other one.

    Ends: terminated at the goal; truncated after `max_steps` steps.
    """

    language = Language(ACTIONS)

    size: int = eqx.field(static=True)

    def __init__(self, size: Any = 5):
        self.size = GridWorld(size).size

    @property
    def grid(self) -> GridWorld:
        return GridWorld(self.size)

    def default_params(self) -> GridWorldParams:
        return self.grid.default_params()

    def reset(self, key: Any, params: Any) -> tuple[Array, GridWorldState]:
        _, state = self.grid.reset(key, params)
        return self.observation(state), state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Array, GridWorldState, Array, Array, Info]:
        _, state, reward, done, info = self.grid.step(key, state, action, params)
        return self.observation(state), state, reward, done, info

    def observation(self, state: Any) -> UInt8[Array, "height width 3"]:
        cell = jnp.arange(self.size * self.size).reshape(self.size, self.size, 1)
        goal = jnp.where(cell == self.size * self.size - 1, jnp.array(GOAL, jnp.uint8), 0)
        cells = jnp.where(cell == state.row * self.size + state.col, jnp.array(AGENT, jnp.uint8), goal)
        return draw.enlarge(cells, CELL).astype(jnp.uint8)

    def observation_space(self, params: Any) -> Image:
        return Image(self.size * CELL, self.size * CELL, 3)

    def action_space(self, params: Any) -> Discrete:
        return self.grid.action_space(params)

    def render(self, state: Any, params: Any) -> Array:
        return self.grid.render(state, params)

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        return self.grid.describe(state, obs, params)

    def agent_position_in_image(self, state: Any, params: Any) -> tuple[float, float]:
        return self.grid.agent_position_in_image(state, params)
