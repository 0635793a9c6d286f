"""GridWorld: walk from the top-left to the bottom-right cell of a square grid."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from tropism.core.adapters.language import Language
from tropism.core.environment import Environment, EnvState, Info, outcome
from tropism.core.params import EnvParams
from tropism.core.spaces import Box, Discrete
from tropism.core.spaces.space import check_count
from tropism.drawing import canvas as draw

ACTIONS = ("up", "right", "down", "left")
PICTURE = 400  # pixels, approximately; the size of a cell is a whole number


class GridWorldParams(EnvParams):
    goal_reward: ArrayLike = 1.0
    step_reward: ArrayLike = -0.01
    max_steps: ArrayLike = 100  # steps until truncation


class GridWorldState(EnvState):
    row: Int[Array, ""]  # 0 is the top
    col: Int[Array, ""]


class Grid(Environment):
    """Abstract: the rules of GridWorld, without an observation. `size` is the number of rows and of columns."""

    language = Language(ACTIONS)

    size: int = eqx.field(static=True)

    @abstractmethod
    def observation(self, state: Any) -> Array: ...

    def default_params(self) -> GridWorldParams:
        return GridWorldParams()

    def reset(self, key: Any, params: Any) -> tuple[Array, GridWorldState]:
        zero = jnp.zeros((), jnp.int32)
        state = GridWorldState(zero, zero, zero)
        return self.observation(state), state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Array, GridWorldState, Array, Array, Info]:
        down = jnp.where(action == 2, 1, jnp.where(action == 0, -1, 0))
        right = jnp.where(action == 1, 1, jnp.where(action == 3, -1, 0))
        last = self.size - 1
        state = GridWorldState(
            time=state.time + 1,
            row=jnp.clip(state.row + down.astype(jnp.int32), 0, last),
            col=jnp.clip(state.col + right.astype(jnp.int32), 0, last),
        )
        arrived = (state.row == last) & (state.col == last)
        reward = jnp.where(arrived, params.goal_reward, params.step_reward).astype(jnp.float32)
        done, info = outcome(arrived, state.time >= params.max_steps)
        return self.observation(state), state, reward, done, info

    def action_space(self, params: Any) -> Discrete:
        return Discrete(len(ACTIONS))

    def render(self, state: Any, params: Any) -> Array:
        cell = max(8, PICTURE // self.size)
        side = cell * self.size
        canvas = draw.blank(side, side)
        x, y = draw.pixels(canvas)
        half = cell / 2
        nearest = jnp.minimum(half - jnp.abs(x % cell - half), half - jnp.abs(y % cell - half))
        canvas = draw.paint(canvas, nearest - 1, draw.GREY)
        canvas = draw.rectangle(canvas, (side - half, half), (0.8 * cell, 0.8 * cell), draw.GREEN)
        agent = ((state.col + 0.5) * cell, side - (state.row + 0.5) * cell)
        return draw.finish(draw.disc(canvas, agent, 0.3 * cell, draw.BLUE))

    def agent_position_in_image(self, state: Any, params: Any) -> tuple[float, float]:
        return (float(state.col) + 0.5) / self.size, (float(state.row) + 0.5) / self.size

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        last = self.size - 1
        return (
            f"Walk to the goal in the bottom-right corner of a {self.size} by {self.size} grid; row 0 is the top.\n"
            f"You are at row {int(state.row)}, column {int(state.col)}; the goal is at row {last}, column {last}.\n"
            f"Step {int(state.time)} of {int(params.max_steps)}. Actions: up, right, down, left."
        )


class GridWorld(Grid):
    """Reward: `goal_reward` for the step that reaches the goal, `step_reward` for every other one.

    Ends: terminated at the goal; truncated after `max_steps` steps. `size` is the number of rows and of columns.
    """

    language = Language(ACTIONS, ("row", "column"))

    def __init__(self, size: Any = 5):
        self.size = check_count("size", size, 2)

    def observation(self, state: Any) -> Float[Array, "2"]:
        return jnp.stack([state.row, state.col]).astype(jnp.float32) / (self.size - 1)

    def observation_space(self, params: Any) -> Box:
        return Box(0.0, 1.0, (2,))
