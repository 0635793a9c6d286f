"""MountainCarContinuous: MountainCar with a continuous force and a cost for its use."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from tropism.core.adapters.language import Language, parse_number
from tropism.core.environment import Info
from tropism.core.params import EnvParams
from tropism.core.registry import preset
from tropism.core.spaces import Box
from tropism.envs.mountain_car import Hill, MountainCarState


class MountainCarContinuousParams(EnvParams):
    min_position: ArrayLike = -1.2
    max_position: ArrayLike = 0.6
    max_speed: ArrayLike = 0.07  # positions per step
    goal_position: ArrayLike = 0.45
    goal_velocity: ArrayLike = 0.0
    power: ArrayLike = 0.0015  # change of speed by a push of 1
    gravity: ArrayLike = 0.0025
    goal_reward: ArrayLike = 100.0
    max_steps: ArrayLike = 999  # steps until truncation


@preset("ppo", gamma=0.999, entropy=0.0, num_steps=512)
class MountainCarContinuous(Hill):
    """Reward: −0.1 · push² for every step, and `goal_reward` on arrival.

    Ends: terminated at `goal_position` with at least `goal_velocity`; truncated after `max_steps` steps.
    """

    reward_threshold = 90
    language = Language(("push",), ("position", "velocity"))

    def default_params(self) -> MountainCarContinuousParams:
        return MountainCarContinuousParams()

    def step(
        self, key: Any, state: Any, action: Any, params: Any
    ) -> tuple[Array, MountainCarState, Array, Array, Info]:
        push = jnp.asarray(action, state.velocity.dtype)[0]
        state, arrived, done, info = self.advance(state, jnp.clip(push, -1, 1) * params.power, params)
        reward = jnp.where(arrived, params.goal_reward, 0) - 0.1 * push**2
        return self.observation(state), state, reward.astype(jnp.float32), done, info

    def action_space(self, params: Any) -> Box:
        return Box(-1.0, 1.0, (1,))

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        actions = "Action: one number, the push from -1 (left) to 1 (right); small pushes cost less."
        return f"{super().describe(state, obs, params)} {actions}"

    def parse(self, text: str, params: Any) -> Any:
        return parse_number(text, self.action_space(params))
