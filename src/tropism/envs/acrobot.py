"""Acrobot: swing the free end of a two-link arm above a line, with a motor only at the elbow.

Sutton, "Generalization in reinforcement learning: successful examples using sparse coarse coding",
NeurIPS 8 (1996); equations of motion as in Sutton & Barto, "Reinforcement Learning: An Introduction".
"""

import math
from typing import Any

import jax.numpy as jnp
from jax import random
from jaxtyping import Array, ArrayLike, Float

from tropism.core.adapters.language import Language
from tropism.core.environment import Environment, EnvState, Info, outcome
from tropism.core.params import EnvParams
from tropism.core.spaces import Box, Discrete
from tropism.drawing import canvas as draw

ACTIONS = ("negative", "none", "positive")  # torque on the elbow
START = 0.1  # every coordinate starts in U(-START, START)
SIDE = 400  # pixels


class AcrobotParams(EnvParams):
    gravity: ArrayLike = 9.8  # m/s²
    length_1: ArrayLike = 1.0  # m
    length_2: ArrayLike = 1.0  # m
    mass_1: ArrayLike = 1.0  # kg
    mass_2: ArrayLike = 1.0  # kg
    center_1: ArrayLike = 0.5  # m, from the joint to the centre of mass
    center_2: ArrayLike = 0.5  # m, likewise
    inertia: ArrayLike = 1.0  # kg·m², of each link
    torque: ArrayLike = 1.0  # N·m
    dt: ArrayLike = 0.2  # s, between steps
    max_speed_1: ArrayLike = 4 * math.pi  # rad/s
    max_speed_2: ArrayLike = 9 * math.pi  # rad/s
    goal_height: ArrayLike = 1.0  # m, above the shoulder
    max_steps: ArrayLike = 500  # steps until truncation


class AcrobotState(EnvState):
    theta_1: Float[Array, ""]  # radians; 0 hangs down, counter-clockwise is positive
    theta_2: Float[Array, ""]  # relative to the first link
    theta_dot_1: Float[Array, ""]
    theta_dot_2: Float[Array, ""]


class Acrobot(Environment):
    """Reward: −1 for every step, 0 for the one that reaches the goal.

    Ends: terminated when the free end is above `goal_height`; truncated after `max_steps` steps.
    """

    reward_threshold = -100
    language = Language(
        ACTIONS, ("cos angle 1", "sin angle 1", "cos angle 2", "sin angle 2", "velocity 1", "velocity 2")
    )

    def default_params(self) -> AcrobotParams:
        return AcrobotParams()

    def reset(self, key: Any, params: Any) -> tuple[Array, AcrobotState]:
        state = AcrobotState(jnp.zeros((), jnp.int32), *random.uniform(key, (4,), minval=-START, maxval=START))
        return self.observation(state), state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Array, AcrobotState, Array, Array, Info]:
        torque = (jnp.asarray(action, jnp.int32) - 1) * params.torque
        joints = (state.theta_1, state.theta_2, state.theta_dot_1, state.theta_dot_2)
        theta_1, theta_2, theta_dot_1, theta_dot_2 = _runge_kutta(joints, torque, params)
        state = AcrobotState(
            time=state.time + 1,
            theta_1=_wrap(theta_1),
            theta_2=_wrap(theta_2),
            theta_dot_1=jnp.clip(theta_dot_1, -params.max_speed_1, params.max_speed_1),
            theta_dot_2=jnp.clip(theta_dot_2, -params.max_speed_2, params.max_speed_2),
        )
        arrived = _joints(state, params)[1][1] > params.goal_height
        done, info = outcome(arrived, state.time >= params.max_steps)
        return self.observation(state), state, jnp.where(arrived, 0.0, -1.0).astype(jnp.float32), done, info

    def observation(self, state: Any) -> Float[Array, "6"]:
        angles = [jnp.cos(state.theta_1), jnp.sin(state.theta_1), jnp.cos(state.theta_2), jnp.sin(state.theta_2)]
        return jnp.stack([*angles, state.theta_dot_1, state.theta_dot_2]).astype(jnp.float32)

    def observation_space(self, params: Any) -> Box:
        high = jnp.array([1.0, 1.0, 1.0, 1.0, params.max_speed_1, params.max_speed_2])
        return Box(-high, high)

    def action_space(self, params: Any) -> Discrete:
        return Discrete(len(ACTIONS))

    def render(self, state: Any, params: Any) -> Array:
        scale = SIDE / (2.3 * (params.length_1 + params.length_2))
        shoulder = (SIDE / 2, SIDE / 2)
        elbow, hand = ((SIDE / 2 + scale * x, SIDE / 2 + scale * y) for x, y in _joints(state, params))
        goal = SIDE / 2 + scale * params.goal_height
        canvas = draw.segment(draw.blank(SIDE, SIDE), (0, goal), (SIDE, goal), 2, draw.GREEN)
        canvas = draw.segment(canvas, shoulder, elbow, 16, draw.BLUE)
        canvas = draw.segment(canvas, elbow, hand, 16, draw.RED)
        canvas = draw.disc(canvas, shoulder, 6, draw.INK)
        return draw.finish(draw.disc(canvas, elbow, 6, draw.YELLOW))

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        height = float(_joints(state, params)[1][1])
        return (
            "Swing the free end of the two-link arm above the line in as few steps as possible.\n"
            f"Free end: height {height:+.3f} m over the shoulder; goal above {float(params.goal_height):g}.\n"
            f"First link: angle {math.degrees(state.theta_1):+.1f}° (0 hangs down), "
            f"{float(state.theta_dot_1):+.3f} rad/s; counter-clockwise is positive.\n"
            f"Second link, relative to the first: angle {math.degrees(state.theta_2):+.1f}°, "
            f"{float(state.theta_dot_2):+.3f} rad/s.\n"
            f"Step {int(state.time)} of {int(params.max_steps)}. "
            "Actions, torque at the elbow: negative, none, positive."
        )


def _joints(state: Any, params: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Elbow and free end, in metres from the shoulder."""
    elbow = (params.length_1 * jnp.sin(state.theta_1), -params.length_1 * jnp.cos(state.theta_1))
    angle = state.theta_1 + state.theta_2
    return elbow, (elbow[0] + params.length_2 * jnp.sin(angle), elbow[1] - params.length_2 * jnp.cos(angle))


def _wrap(angle: Any) -> Any:
    return angle - 2 * jnp.pi * jnp.round(angle / (2 * jnp.pi))


def _runge_kutta(joints: Any, torque: Any, params: Any) -> tuple[Any, ...]:
    """The joints after `dt`, by the classical fourth-order method."""

    def euler_step(slope: Any, dt: Any) -> tuple[Any, ...]:
        return tuple(value + dt * rate for value, rate in zip(joints, slope, strict=True))

    k1 = _slope(joints, torque, params)
    k2 = _slope(euler_step(k1, params.dt / 2), torque, params)
    k3 = _slope(euler_step(k2, params.dt / 2), torque, params)
    k4 = _slope(euler_step(k3, params.dt), torque, params)
    mean = [(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True)]
    return euler_step(mean, params.dt)


def _slope(joints: Any, torque: Any, p: Any) -> tuple[Any, Any, Any, Any]:
    """The joints' rates of change; d and phi as the book names them."""
    theta_1, theta_2, speed_1, speed_2 = joints
    sin_2, cos_2 = jnp.sin(theta_2), jnp.cos(theta_2)
    coupling = p.mass_2 * p.length_1 * p.center_2
    own_2 = p.mass_2 * p.center_2**2 + p.inertia
    d_1 = p.mass_1 * p.center_1**2 + p.mass_2 * p.length_1**2 + p.inertia + own_2 + 2 * coupling * cos_2
    d_2 = own_2 + coupling * cos_2
    phi_2 = p.mass_2 * p.center_2 * p.gravity * jnp.sin(theta_1 + theta_2)
    lever = p.mass_1 * p.center_1 + p.mass_2 * p.length_1
    phi_1 = phi_2 + lever * p.gravity * jnp.sin(theta_1) - coupling * sin_2 * speed_2 * (speed_2 + 2 * speed_1)
    drive = torque + d_2 / d_1 * phi_1 - coupling * speed_1**2 * sin_2 - phi_2
    acceleration_2 = drive / (own_2 - d_2**2 / d_1)
    return speed_1, speed_2, -(d_2 * acceleration_2 + phi_1) / d_1, acceleration_2
