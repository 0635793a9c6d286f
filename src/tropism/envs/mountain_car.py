"""MountainCar: rock a car that is too weak for the hill until it reaches the flag.

Moore, "Efficient memory-based learning for robot control", PhD thesis, University of Cambridge (1990).
"""

from typing import Any

import jax.numpy as jnp
from jax import random
from jaxtyping import Array, ArrayLike, Float

from tropism.core.adapters.language import Language
from tropism.core.environment import Environment, EnvState, Info, outcome
from tropism.core.params import EnvParams
from tropism.core.spaces import Box, Discrete
from tropism.drawing import canvas as draw

ACTIONS = ("left", "none", "right")
START = (-0.6, -0.4)
HEIGHT, WIDTH = 400, 600  # pixels
SKY, GROUND = (231, 245, 255), (140, 160, 110)


class MountainCarParams(EnvParams):
    min_position: ArrayLike = -1.2
    max_position: ArrayLike = 0.6
    max_speed: ArrayLike = 0.07  # positions per step
    goal_position: ArrayLike = 0.5
    goal_velocity: ArrayLike = 0.0
    force: ArrayLike = 0.001  # change of speed by a push
    gravity: ArrayLike = 0.0025
    max_steps: ArrayLike = 200  # steps until truncation


class MountainCarState(EnvState):
    position: Float[Array, ""]
    velocity: Float[Array, ""]


class Hill(Environment):
    """Abstract: the car and the hill; a subclass defines the push."""

    def reset(self, key: Any, params: Any) -> tuple[Array, MountainCarState]:
        position = random.uniform(key, minval=START[0], maxval=START[1])
        state = MountainCarState(jnp.zeros((), jnp.int32), position, jnp.zeros_like(position))
        return self.observation(state), state

    def advance(self, state: Any, push: Any, params: Any) -> tuple[MountainCarState, Array, Array, Info]:
        """`(state, arrived, done, info)` after one step; the wall on the left stops the car."""
        velocity = state.velocity + push - params.gravity * jnp.cos(3 * state.position)
        velocity = jnp.clip(velocity, -params.max_speed, params.max_speed)
        position = jnp.clip(state.position + velocity, params.min_position, params.max_position)
        stopped = (position == params.min_position) & (velocity < 0)
        state = MountainCarState(state.time + 1, position, jnp.where(stopped, 0, velocity))
        arrived = (state.position >= params.goal_position) & (state.velocity >= params.goal_velocity)
        return state, arrived, *outcome(arrived, state.time >= params.max_steps)

    def observation(self, state: Any) -> Float[Array, "2"]:
        return jnp.stack([state.position, state.velocity]).astype(jnp.float32)

    def observation_space(self, params: Any) -> Box:
        low = jnp.array([params.min_position, -params.max_speed])
        high = jnp.array([params.max_position, params.max_speed])
        return Box(low, high)

    def render(self, state: Any, params: Any) -> Array:
        return draw_car(state, params)

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        """Goal, position and velocity in words; a subclass adds the actions."""
        return (
            "Reach the flag on the right hill; the engine is too weak to climb it at once, so rock back and forth.\n"
            f"Car: position {float(state.position):+.4f} (valley floor -0.52, left wall "
            f"{float(params.min_position):g}, flag {float(params.goal_position):g}), velocity "
            f"{float(state.velocity):+.5f} (at most {float(params.max_speed):g}); positive is right.\n"
            f"Step {int(state.time)} of {int(params.max_steps)}."
        )


class MountainCar(Hill):
    """Reward: −1 for every step.

    Ends: terminated at `goal_position` with at least `goal_velocity`; truncated after `max_steps` steps.
    """

    reward_threshold = -110
    language = Language(ACTIONS, ("position", "velocity"))

    def default_params(self) -> MountainCarParams:
        return MountainCarParams()

    def step(
        self, key: Any, state: Any, action: Any, params: Any
    ) -> tuple[Array, MountainCarState, Array, Array, Info]:
        state, _, done, info = self.advance(state, (jnp.asarray(action, jnp.int32) - 1) * params.force, params)
        return self.observation(state), state, jnp.full((), -1, jnp.float32), done, info

    def action_space(self, params: Any) -> Discrete:
        return Discrete(len(ACTIONS))

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        return f"{super().describe(state, obs, params)} Actions: left, none, right."


def draw_car(state: Any, params: Any) -> Array:
    scale = WIDTH / (params.max_position - params.min_position)

    def on_hill(position: Any, above: Any) -> tuple[Any, Any]:
        """The point `above` pixels over the hill, perpendicular to it."""
        tilt = _tilt(position)
        x = scale * (position - params.min_position) - above * jnp.sin(tilt)
        return x, scale * _height(position) + above * jnp.cos(tilt)

    canvas = draw.blank(HEIGHT, WIDTH, SKY)
    x, y = draw.pixels(canvas)
    position = x / scale + params.min_position
    depth = (y - scale * _height(position)) * jnp.cos(_tilt(position))
    canvas = draw.paint(canvas, depth, GROUND)
    canvas = draw.paint(canvas, jnp.abs(depth) - 1.5, draw.INK)

    foot = on_hill(params.goal_position, 0)
    canvas = draw.segment(canvas, foot, (foot[0], foot[1] + 50), 2, draw.INK)
    flag = [(foot[0], foot[1] + 50), (foot[0], foot[1] + 28), (foot[0] + 26, foot[1] + 39)]
    canvas = draw.polygon(canvas, flag, draw.RED)

    tilt = _tilt(state.position)
    canvas = draw.rectangle(canvas, on_hill(state.position, 18), (44, 16), draw.BLUE, tilt)
    canvas = draw.rectangle(canvas, on_hill(state.position, 30), (24, 12), draw.BLUE, tilt)
    for side in (-13, 13):
        wheel = on_hill(state.position + side / scale * jnp.cos(tilt), 8)
        canvas = draw.disc(canvas, wheel, 8, draw.INK)
        canvas = draw.disc(canvas, wheel, 3, draw.GREY)
    return draw.finish(canvas)


def _height(position: Any) -> Any:
    return 0.45 * jnp.sin(3 * position) + 0.55


def _tilt(position: Any) -> Any:
    return jnp.arctan(1.35 * jnp.cos(3 * position))
