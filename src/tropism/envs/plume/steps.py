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
    """The operations of a step; each returns the state after it."""

    def move(self, state: Any, action: Any) -> Any: ...

    def advance(self, state: Any) -> Any:
        """Advance plume and wind."""
        ...

    def reward(self, before: Any, action: Any, after: Any) -> Any: ...

    def count(self, state: Any, reward: Any) -> Any:
        """Update the counters."""
        ...

    def observe(self, state: Any) -> tuple[Any, Any]:
        """`(obs, state)`."""
        ...

    def flags(self, state: Any) -> tuple[Any, Any]:
        """`(terminated, truncated)`."""
        ...

    def info(self, state: Any) -> Info: ...


def take_step(steps: SearchSteps, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Info]:
    """One step of a search, as `Environment.step` returns it."""
    after = steps.advance(steps.move(state, action))
    reward = steps.reward(state, action, after)
    obs, after = steps.observe(steps.count(after, reward))
    return obs, after, reward, *outcome(*steps.flags(after), steps.info(after))


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
        return replace(state, agent=agent, trail=trail)

    def advance(self, state: Any) -> Any:
        return replace(state, field=self.params.field.advance(random.fold_in(self.key, FIELD), state.field))

    def reward(self, before: Any, action: Any, after: Any) -> Any:
        scene = self._scene(after)
        reached = scene.distance <= self.params.goal_radius
        return self.params.reward(self._scene(before), action, scene, reached).astype(jnp.float32)

    def count(self, state: Any, reward: Any) -> Any:
        return replace(state, time=state.time + 1)

    def observe(self, state: Any) -> tuple[Any, Any]:
        key = random.fold_in(self.key, SENSOR)
        obs, memory = self.params.sensor.sense(key, state.sensor, self._scene(state))
        return obs, replace(state, sensor=memory)

    def flags(self, state: Any) -> tuple[Any, Any]:
        scene = self._scene(state)
        terminated = (scene.distance <= self.params.goal_radius) | state.agent.absorbed
        if self.params.max_stray is not None:
            terminated |= scene.stray > self.params.max_stray
        return terminated, state.time >= self.params.max_steps

    def info(self, state: Any) -> Info:
        return self.env.info(state, self.params)

    def _scene(self, state: Any) -> Scene:
        return self.env.scene(state, self.params)


class HostSteps:
    """The operations of a step with parts on the host; one for each episode. A step changes a copy of the state."""

    def __init__(self, search: Any, params: Any):
        self.search = search  # a HostSearch
        self.params = params
        self.goal_radius, self.max_steps = float(params.goal_radius), int(params.max_steps)

    def move(self, state: Any, action: Any) -> Any:
        after = state.copy()
        self.search.move_agent(after, action, self.params)
        if self.search.trail:
            after.trail = (*state.trail[1:], after.agent.position)
        return after

    def advance(self, state: Any) -> Any:
        self.search.parts.advance(state.agent.step_count + 1)
        self.search.update_surroundings(state, self.goal_radius)
        return state

    def reward(self, before: Any, action: Any, after: Any) -> float:
        return self.search.reward(before, action, after, self.params)

    def count(self, state: Any, reward: float) -> Any:
        agent = state.agent
        agent.step_count += 1
        agent.total_reward += reward
        return state

    def observe(self, state: Any) -> tuple[Any, Any]:
        return self.search.observe(state, self.params), state

    def flags(self, state: Any) -> tuple[bool, bool]:
        agent = state.agent
        return agent.goal_reached or state.absorbed, agent.step_count >= self.max_steps

    def info(self, state: Any) -> Info:
        return {}  # the engine adds the info of the state
