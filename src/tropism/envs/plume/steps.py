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


def search_info(reached: Any, position: Any, goal: Any, distance: Any, concentration: Any) -> Info:
    return {
        "goal_reached": reached,
        "agent_xy": position,
        "agent_position": position,
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
        reached = self._scene(state).distance <= self.params.goal_radius
        return reached | state.agent.absorbed, state.time >= self.params.max_steps

    def info(self, state: Any) -> Info:
        return self.env.info(state, self.params)

    def _scene(self, state: Any) -> Scene:
        return self.env.scene(state, self.params)


@dataclass(frozen=True)
class HostSteps:
    """The operations of a step with parts on the host."""

    search: Any  # a HostSearch
    params: Any

    def move(self, state: Any, action: Any) -> Any:
        agent, pose = self.search.move_agent(state, action, self.params)
        trail = (*state.trail[1:], agent.position) if self.search.trail else ()
        return replace(state, agent=agent, pose=pose, trail=trail)

    def advance(self, state: Any) -> Any:
        self.search.parts.advance(state.agent.step_count + 1)
        return self.search.update_surroundings(state, self.params)

    def reward(self, before: Any, action: Any, after: Any) -> float:
        return self.search.reward(before, action, after, self.params)

    def count(self, state: Any, reward: float) -> Any:
        agent = state.agent
        agent = replace(agent, step_count=agent.step_count + 1, total_reward=agent.total_reward + reward)
        return replace(state, agent=agent)

    def observe(self, state: Any) -> tuple[Any, Any]:
        return self.search.observe(state, self.params)

    def flags(self, state: Any) -> tuple[bool, bool]:
        agent = state.agent
        return agent.goal_reached or bool(state.pose.absorbed), agent.step_count >= int(self.params.max_steps)

    def info(self, state: Any) -> Info:
        return self.search.info(state)
