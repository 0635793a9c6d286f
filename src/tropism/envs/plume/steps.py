"""The step of a search with library parts, and the info of every search."""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jax import random

from tropism.core.environment import Info, outcome
from tropism.plume.scene import Scene

PRIVATE_INFO = ("source_location", "goal_location", "distance_to_goal", "concentration_at_agent")
FIELD, SENSOR, MOTION = 1, 2, 3  # folded into a step's key: each part has its own


def search_info(reached: Any, position: Any, heading: Any, goal: Any, distance: Any, concentration: Any) -> Info:
    """`heading` is in degrees, from 0 to 360."""
    return {
        "goal_reached": reached,
        "agent_xy": position,
        "agent_position": position,
        "heading": heading,
        "source_location": goal,
        "goal_location": goal,
        "distance_to_goal": distance,
        "concentration_at_agent": concentration,
    }


@dataclass(frozen=True)
class PureSteps:
    """A step of `PlumeNav`, with its key."""

    env: Any
    key: Any
    params: Any

    def take(self, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Info]:
        """Move, advance plume and wind, compute the reward, count and observe; with user parts, `HostSearch.step`."""
        after = self._move(state, action)
        reward = self._reward(state, action, after)
        obs, after = self._observe(replace(after, time=after.time + 1))
        return obs, after, reward, *self._outcome(after)

    def _move(self, state: Any, action: Any) -> Any:
        agent = self.params.motion.move(random.fold_in(self.key, MOTION), action, self._scene(state))
        trail = jnp.concatenate([state.trail[1:], agent.xy[None]]) if self.env.trail else state.trail
        field = self.params.field.advance(random.fold_in(self.key, FIELD), state.field)
        return replace(state, agent=agent, field=field, trail=trail)

    def _reward(self, before: Any, action: Any, after: Any) -> Any:
        scene = self._scene(after)
        reached = scene.distance <= self.params.goal_radius
        return self.params.reward(self._scene(before), action, scene, reached).astype(jnp.float32)

    def _observe(self, state: Any) -> tuple[Any, Any]:
        key = random.fold_in(self.key, SENSOR)
        obs, memory = self.params.sensor.sense(key, state.sensor, self._scene(state))
        return obs, replace(state, sensor=memory)

    def _outcome(self, state: Any) -> tuple[Any, Info]:
        scene = self._scene(state)
        terminated = (scene.distance <= self.params.goal_radius) | state.agent.absorbed
        if self.params.max_stray is not None:
            terminated |= scene.stray > self.params.max_stray
        return outcome(terminated, state.time >= self.params.max_steps, self.env.info(state, self.params))

    def _scene(self, state: Any) -> Scene:
        return self.env.scene(state, self.params)
