"""Library parts of a search on the host, compiled one by one."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tropism.core.episode import step_key
from tropism.core.spaces import Box, Space
from tropism.envs.plume.steps import MOTION, SENSOR
from tropism.plume.scene import AgentPose, Scene, pair
from tropism.plume.user_parts import AgentAtPoint, PlaceholderField

SMALL = 8  # entries of an observation that is compared number by number, which is faster than by array
SceneParts = tuple[Any, ...]  # the fields of a Scene, which a compiled part constructs itself


@jax.jit
def start_pose(words: Any, start: Any, motion: Any, arena: Any, source: Any, goal_radius: Any) -> AgentPose:
    agent = start.place(step_key(words, 0), arena, pair(source), goal_radius, motion.on_grid)
    return replace(agent, heading=motion.initial_heading(agent.heading))


@jax.jit
def to_pose(position: Any, degrees: Any, moved: Any) -> AgentPose:
    xy = pair(position)
    return AgentPose.at(xy, jnp.deg2rad(jnp.asarray(degrees, xy.dtype)), pair(moved), jnp.zeros((), bool))


class SmallBox:
    """A fast test whether an array is in a small box and needs no conversion."""

    def __init__(self, space: Box):
        self.shape, self.dtype = space.shape, space.dtype
        self.low, self.high = space.low.tolist(), space.high.tolist()

    @classmethod
    def of(cls, space: Space) -> "SmallBox | None":
        """None if the space is not a small box."""
        if isinstance(space, Box) and len(space.shape) == 1 and 0 < space.shape[0] <= SMALL:
            return cls(space)
        return None

    def contains(self, obs: Any) -> bool:
        if type(obs) is not np.ndarray or obs.dtype is not self.dtype or obs.shape != self.shape:
            return False
        for value, low, high in zip(obs.tolist(), self.low, self.high, strict=True):
            if not low <= value <= high:
                return False
        return True


def _scene(parts: SceneParts) -> Scene:
    pose, arena, field, state = parts
    if isinstance(field, PlaceholderField) and field.inner is None:
        pose = AgentAtPoint.of(pose)
        state = (pose.xy, state)
    return Scene(pose, arena, field, state)


def _key(words: Any, step: Any, part: int) -> Any:
    return random.fold_in(step_key(jnp.asarray(words), step), part)


@jax.jit
def move(motion: Any, words: Any, step: Any, action: Any, parts: SceneParts) -> AgentPose:
    return motion.move(_key(words, step, MOTION), action, _scene(parts))


@jax.jit
def compute_reward(reward: Any, action: Any, reached: Any, before: SceneParts, after: SceneParts) -> Any:
    return reward(_scene(before), action, _scene(after), jnp.asarray(reached)).astype(jnp.float32)


@jax.jit
def sense(sensor: Any, words: Any, step: Any, memory: Any, parts: SceneParts) -> Any:
    return sensor.sense(_key(words, step, SENSOR), memory, _scene(parts))
