"""Pendulum: swing a hanging arm up and hold it there with a motor too weak to lift it at once."""

import math
from typing import Any

import jax.numpy as jnp
from jax import random
from jaxtyping import Array, ArrayLike, Float

from tropism.core.adapters.language import Language, parse_number
from tropism.core.environment import Environment, EnvState, Info, outcome
from tropism.core.params import EnvParams
from tropism.core.registry import preset
from tropism.core.spaces import Box
from tropism.drawing import canvas as draw

START_ANGLE, START_SPEED = math.pi, 1.0  # an episode starts in U(-START, START)
TURN = 6.28125  # approximately 2 pi, in nine binary digits
SIDE, ARM = 400, 150  # pixels


class PendulumParams(EnvParams):
    gravity: ArrayLike = 10.0  # m/s²
    mass: ArrayLike = 1.0  # kg
    length: ArrayLike = 1.0  # m
    dt: ArrayLike = 0.05  # s, between steps
    max_speed: ArrayLike = 8.0  # rad/s
    max_torque: ArrayLike = 2.0  # N·m
    max_steps: ArrayLike = 200  # steps until truncation


class PendulumState(EnvState):
    theta: Float[Array, ""]  # radians, 0 is upright, counter-clockwise is positive; not wrapped
    theta_dot: Float[Array, ""]


@preset("ppo", total_steps=1_000_000, gamma=0.95, entropy=0.0)
class Pendulum(Environment):
    """Reward: −(angle from upright² + 0.1 · angular velocity² + 0.001 · torque²), of the state before the step.

    Ends: truncated after `max_steps` steps; never terminated.
    """

    language = Language(("torque",), ("cos angle", "sin angle", "angular velocity"))

    def default_params(self) -> PendulumParams:
        return PendulumParams()

    def reset(self, key: Any, params: Any) -> tuple[Array, PendulumState]:
        theta, theta_dot = random.uniform(key, (2,), minval=-1.0)
        state = PendulumState(jnp.zeros((), jnp.int32), START_ANGLE * theta, START_SPEED * theta_dot)
        return self.observation(state), state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Array, PendulumState, Array, Array, Info]:
        torque = jnp.clip(jnp.asarray(action, state.theta.dtype)[0], -params.max_torque, params.max_torque)
        cost = upright_error(state.theta) ** 2 + 0.1 * state.theta_dot**2 + 0.001 * torque**2
        fall = 3 * params.gravity / (2 * params.length) * jnp.sin(state.theta)
        drive = 3 / (params.mass * params.length**2) * torque
        theta_dot = state.theta_dot + (fall + drive) * params.dt
        theta_dot = jnp.clip(theta_dot, -params.max_speed, params.max_speed)
        state = PendulumState(state.time + 1, state.theta + theta_dot * params.dt, theta_dot)
        done, info = outcome(jnp.zeros((), bool), state.time >= params.max_steps)
        return self.observation(state), state, (-cost).astype(jnp.float32), done, info

    def observation(self, state: Any) -> Float[Array, "3"]:
        return jnp.stack([jnp.cos(state.theta), jnp.sin(state.theta), state.theta_dot]).astype(jnp.float32)

    def observation_space(self, params: Any) -> Box:
        high = jnp.array([1.0, 1.0, params.max_speed])
        return Box(-high, high)

    def action_space(self, params: Any) -> Box:
        return Box(-params.max_torque, params.max_torque, (1,))

    def render(self, state: Any, params: Any) -> Array:
        pivot = (SIDE / 2, SIDE / 2)
        tip = (pivot[0] - ARM * jnp.sin(state.theta), pivot[1] + ARM * jnp.cos(state.theta))
        canvas = draw.ring(draw.blank(SIDE, SIDE), pivot, ARM, 2, draw.PALE)
        canvas = draw.disc(canvas, (pivot[0], pivot[1] + ARM), 6, draw.GREEN)
        canvas = draw.segment(canvas, pivot, tip, 28, draw.RED)
        return draw.finish(draw.disc(canvas, pivot, 7, draw.INK))

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        angle = math.degrees(upright_error(state.theta))
        torque = float(params.max_torque)
        return (
            "Swing the arm up to 0° and hold it there with little torque.\n"
            f"Arm: angle {angle:+.1f}° from upright (±180 hangs down), angular velocity {float(state.theta_dot):+.3f} "
            f"rad/s (at most {float(params.max_speed):g}); counter-clockwise is positive.\n"
            f"Step {int(state.time)} of {int(params.max_steps)}. "
            f"Action: one number, the torque from {-torque:g} to {torque:g}."
        )

    def parse(self, text: str, params: Any) -> Any:
        return parse_number(text, self.action_space(params))


def upright_error(theta: Any) -> Array:
    """The angle from upright, wrapped into [-pi, pi]."""
    turns = jnp.round(theta / (2 * jnp.pi))
    # Subtract a turn in two parts, the first short enough for an exact product: precise also after many turns.
    return (theta - turns * TURN) - turns * (2 * math.pi - TURN)
