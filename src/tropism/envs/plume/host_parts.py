"""Library parts of a search on the host, compiled one by one."""

from collections.abc import Callable
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


def small_box_test(space: Space) -> Callable[[Any], bool]:
    """A fast test whether an array is in a small box and needs no conversion; always False for other spaces."""
    if not isinstance(space, Box) or len(space.shape) != 1 or not 0 < space.shape[0] <= SMALL:
        return lambda _: False
    shape, dtype, bounds = space.shape, space.dtype, list(zip(space.low.tolist(), space.high.tolist(), strict=True))
    only = bounds[0] if len(bounds) == 1 else None

    def contains(obs: Any) -> bool:
        if type(obs) is not np.ndarray or obs.dtype is not dtype or obs.shape != shape:
            return False
        if only is not None:
            return only[0] <= obs.item() <= only[1]
        return all(low <= value <= high for value, (low, high) in zip(obs.tolist(), bounds, strict=True))

    return contains


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
