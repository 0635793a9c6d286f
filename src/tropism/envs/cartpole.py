"""CartPole: push a cart left or right so that the pole hinged on it stays up.

Barto, Sutton & Anderson, "Neuronlike adaptive elements that can solve difficult learning control
problems", IEEE Transactions on Systems, Man, and Cybernetics 13 (1983).
"""

import math
from typing import Any

import jax.numpy as jnp
from jax import random
from jaxtyping import Array, ArrayLike, Float

from tropism.core.adapters.language import Language
from tropism.core.environment import Environment, EnvState, Info, outcome
from tropism.core.params import EnvParams
from tropism.core.registry import preset
from tropism.core.spaces import Box, Discrete
from tropism.drawing import canvas as draw

ACTIONS = ("left", "right")
START = 0.05  # every coordinate starts in U(-START, START)
HEIGHT, WIDTH, TRACK = 400, 600, 110  # pixels


class CartPoleParams(EnvParams):
    gravity: ArrayLike = 9.8  # m/s²
    masscart: ArrayLike = 1.0  # kg
    masspole: ArrayLike = 0.1  # kg
    length: ArrayLike = 0.5  # m, half the pole's length
    force_mag: ArrayLike = 10.0  # N
    tau: ArrayLike = 0.02  # s, between steps
    theta_threshold: ArrayLike = math.radians(12)  # rad
    x_threshold: ArrayLike = 2.4  # m
    max_steps: ArrayLike = 500  # steps until truncation


class CartPoleState(EnvState):
    x: Float[Array, ""]
    x_dot: Float[Array, ""]
    theta: Float[Array, ""]  # radians, 0 is upright, positive leans right
    theta_dot: Float[Array, ""]


@preset("ppo", num_steps=64, hidden=32, learning_rate=2e-3)
class CartPole(Environment):
    """Reward: 1 for every step.

    Ends: terminated when the cart is beyond ±`x_threshold` or the pole beyond ±`theta_threshold`; truncated after
    `max_steps` steps.
    """

    reward_threshold = 475
    language = Language(ACTIONS, ("cart position", "cart velocity", "pole angle", "pole velocity"))

    def default_params(self) -> CartPoleParams:
        return CartPoleParams()

    def reset(self, key: Any, params: Any) -> tuple[Array, CartPoleState]:
        x, x_dot, theta, theta_dot = random.uniform(key, (4,), minval=-START, maxval=START)
        state = CartPoleState(jnp.zeros((), jnp.int32), x, x_dot, theta, theta_dot)
        return self.observation(state), state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Array, CartPoleState, Array, Array, Info]:
        x_acc, theta_acc = _accelerations(state, action, params)
        state = CartPoleState(
            time=state.time + 1,
            x=state.x + params.tau * state.x_dot,
            x_dot=state.x_dot + params.tau * x_acc,
            theta=state.theta + params.tau * state.theta_dot,
            theta_dot=state.theta_dot + params.tau * theta_acc,
        )
        fell = (jnp.abs(state.x) > params.x_threshold) | (jnp.abs(state.theta) > params.theta_threshold)
        done, info = outcome(fell, state.time >= params.max_steps)
        return self.observation(state), state, jnp.ones((), jnp.float32), done, info

    def observation(self, state: Any) -> Float[Array, "4"]:
        return jnp.stack([state.x, state.x_dot, state.theta, state.theta_dot]).astype(jnp.float32)

    def observation_space(self, params: Any) -> Box:
        high = jnp.array([2 * params.x_threshold, jnp.inf, 2 * params.theta_threshold, jnp.inf])
        return Box(-high, high)

    def action_space(self, params: Any) -> Discrete:
        return Discrete(len(ACTIONS))

    def render(self, state: Any, params: Any) -> Array:
        scale = WIDTH / (2.3 * params.x_threshold)
        x, limit = WIDTH / 2 + scale * state.x, scale * params.x_threshold
        reach = scale * 2 * params.length
        hinge = (x, TRACK + 34)
        tip = (x + reach * jnp.sin(state.theta), hinge[1] + reach * jnp.cos(state.theta))
        canvas = draw.segment(draw.blank(HEIGHT, WIDTH), (0, TRACK), (WIDTH, TRACK), 2, draw.GREY)
        for end in (WIDTH / 2 - limit, WIDTH / 2 + limit):
            canvas = draw.segment(canvas, (end, TRACK - 14), (end, TRACK + 14), 3, draw.RED)
        canvas = draw.rectangle(canvas, (x, TRACK + 22), (66, 26), draw.INK)
        for side in (-20, 20):
            canvas = draw.disc(canvas, (x + side, TRACK + 8), 8, draw.GREY)
        canvas = draw.segment(canvas, hinge, tip, 11, draw.BROWN)
        return draw.finish(draw.disc(canvas, hinge, 5, draw.BLUE))

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        limit = math.degrees(params.theta_threshold)
        return (
            "Keep the pole on the cart upright by pushing the cart left or right at every step.\n"
            f"Cart: position {float(state.x):+.3f} m (the episode ends beyond ±{float(params.x_threshold):g}), "
            f"velocity {float(state.x_dot):+.3f} m/s; positive is right.\n"
            f"Pole: angle {math.degrees(state.theta):+.2f}° (the episode ends beyond ±{limit:g}), "
            f"angular velocity {math.degrees(state.theta_dot):+.2f}°/s; positive leans right.\n"
            f"Step {int(state.time)} of {int(params.max_steps)}. Actions: left, right."
        )


def _accelerations(state: Any, action: Any, params: Any) -> tuple[Any, Any]:
    """Accelerations of the cart and of the pole's angle."""
    force = jnp.where(action == 1, params.force_mag, -params.force_mag)
    sin, cos = jnp.sin(state.theta), jnp.cos(state.theta)
    total_mass = params.masscart + params.masspole
    pole_moment = params.masspole * params.length
    push = (force + pole_moment * state.theta_dot**2 * sin) / total_mass
    inertia = params.length * (4 / 3 - params.masspole * cos**2 / total_mass)
    theta_acc = (params.gravity * sin - cos * push) / inertia
    return push - pole_moment * theta_acc * cos / total_mass, theta_acc
