"""The order of a search's step and its info, written once: for compiled parts, and for parts on the host."""

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
from jax import random

from tropism.core.environment import Info, outcome
from tropism.plume.scene import Scene

PRIVATE_INFO = ("source_location", "goal_location", "distance_to_goal", "concentration_at_agent")
FIELD, SENSOR, MOTION = 1, 2, 3  # folded into a step's key: each part has its own


@runtime_checkable
class SearchSteps(Protocol):
    """The operations of a step."""

    def move(self, state: Any, action: Any) -> Any:
        """Move the agent, then advance plume and wind."""
        ...

    def reward(self, before: Any, action: Any, after: Any) -> Any: ...

    def observe(self, state: Any, reward: Any) -> tuple[Any, Any]:
        """Update the counters, then observe: `(obs, state)`."""
        ...

    def outcome(self, state: Any) -> tuple[Any, Info]:
        """`(done, info)`."""
        ...


def take_step(steps: SearchSteps, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Info]:
    """One step of a search, as `Environment.step` returns it."""
    after = steps.move(state, action)
    reward = steps.reward(state, action, after)
    obs, after = steps.observe(after, reward)
    done, info = steps.outcome(after)
    return obs, after, reward, done, info


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
    """The operations of `PlumeNav`, compiled, with the key of one step."""

    env: Any
    key: Any
    params: Any

    def move(self, state: Any, action: Any) -> Any:
        agent = self.params.motion.move(random.fold_in(self.key, MOTION), action, self._scene(state))
        trail = jnp.concatenate([state.trail[1:], agent.xy[None]]) if self.env.trail else state.trail
        field = self.params.field.advance(random.fold_in(self.key, FIELD), state.field)
        return replace(state, agent=agent, field=field, trail=trail)

    def reward(self, before: Any, action: Any, after: Any) -> Any:
        scene = self._scene(after)
        reached = scene.distance <= self.params.goal_radius
        return self.params.reward(self._scene(before), action, scene, reached).astype(jnp.float32)

    def observe(self, state: Any, reward: Any) -> tuple[Any, Any]:
        state = replace(state, time=state.time + 1)
        key = random.fold_in(self.key, SENSOR)
        obs, memory = self.params.sensor.sense(key, state.sensor, self._scene(state))
        return obs, replace(state, sensor=memory)

    def outcome(self, state: Any) -> tuple[Any, Info]:
        scene = self._scene(state)
        terminated = (scene.distance <= self.params.goal_radius) | state.agent.absorbed
        if self.params.max_stray is not None:
            terminated |= scene.stray > self.params.max_stray
        return outcome(terminated, state.time >= self.params.max_steps, self.env.info(state, self.params))

    def _scene(self, state: Any) -> Scene:
        return self.env.scene(state, self.params)
