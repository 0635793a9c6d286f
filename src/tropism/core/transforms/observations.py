"""Transforms of the observation: frame_stack, normalize_obs, grayscale, resize."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tropism.core.adapters.language import Language
from tropism.core.environment import Environment
from tropism.core.episode import Timestep
from tropism.core.spaces import Box, Space
from tropism.core.spaces.composite import stack_space
from tropism.core.spaces.space import check_count
from tropism.core.transforms.auto_reset import apply_transform
from tropism.core.transforms.transform import Transform
from tropism.errors import ValidationError

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
VARIANCE_FLOOR = 1e-8
PRIOR_COUNT = 1e-4  # weight of the unit prior, as in Gymnasium's running statistics


class ObservationTransform(Transform):
    """Maps an observation and a memory; `observe` replaces the hooks `first` and `after`."""

    @property
    def language(self) -> Language:
        """Without the observation's message, which describes the inner observation."""
        return replace(self.env.language, observation_type=None, message=None)

    def observe(self, memory: Any, obs: Any, params: Any) -> tuple[Any, Any]:
        return obs, memory

    def first(self, memory: Any, obs: Any, params: Any) -> tuple[Any, Any]:
        return self.observe(memory, obs, params)

    def after(self, memory: Any, timestep: Timestep, params: Any) -> tuple[Timestep, Any]:
        obs, memory = self.observe(memory, timestep.obs, params)
        return timestep._replace(obs=obs), memory


def frame_stack(env: Environment, num_frames: int) -> Environment:
    """The last `num_frames` observations, oldest first, along a new leading axis.

    An episode starts with its first observation repeated, so the stack never has frames of an earlier one.
    """
    size = check_count("num_frames", num_frames)
    stack_space(env.observation_space(env.default_params()), 1)
    return apply_transform(lambda inner: FrameStack(inner, size), env)


class FrameStack(ObservationTransform):
    num_frames: int

    def first(self, memory: Any, obs: Any, params: Any) -> tuple[Any, Any]:
        frames = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.num_frames, *jnp.shape(leaf))), obs)
        return frames, frames

    def after(self, memory: Any, timestep: Timestep, params: Any) -> tuple[Timestep, Any]:
        frames = jax.tree.map(lambda old, leaf: jnp.concatenate([old[1:], leaf[None]]), memory, timestep.obs)
        return timestep._replace(obs=frames), frames

    def observation_space(self, params: Any) -> Space:
        return stack_space(self.env.observation_space(params), self.num_frames)


def normalize_obs(env: Environment, epsilon: float = VARIANCE_FLOOR) -> Environment:
    """Subtract the running mean and divide by the running deviation, which automatic resets keep."""
    if not isinstance(epsilon, float | int) or not epsilon > 0:
        raise ValidationError("epsilon", epsilon, "a number above 0")
    space = env.observation_space(env.default_params())
    if not isinstance(space, Box):
        raise ValidationError("observation_space", space, "a Box")
    return apply_transform(lambda inner: NormalizeObs(inner, float(epsilon)), env)


class RunningStatistics(eqx.Module):
    """Running mean and variance of all observations so far."""

    mean: Float[Array, "..."]
    variance: Float[Array, "..."]
    count: Float[Array, ""]

    def update(self, obs: Float[Array, "..."]) -> "RunningStatistics":
        count = self.count + 1
        delta = obs - self.mean
        mean = self.mean + delta / count
        variance = (self.variance * self.count + delta * (obs - mean)) / count
        return RunningStatistics(mean, variance, count)


class NormalizeObs(ObservationTransform):
    epsilon: float

    def start(self, key: Any, memory: RunningStatistics | None, params: Any) -> RunningStatistics:
        if memory is not None:
            return memory
        shape = self.observation_space(params).shape or ()
        return RunningStatistics(jnp.zeros(shape, jnp.float32), jnp.ones(shape, jnp.float32), jnp.float32(PRIOR_COUNT))

    def observe(self, memory: RunningStatistics, obs: Any, params: Any) -> tuple[Any, RunningStatistics]:
        obs = jnp.asarray(obs, jnp.float32)
        moments = memory.update(obs)
        return (obs - moments.mean) / jnp.sqrt(moments.variance + self.epsilon), moments

    def observation_space(self, params: Any) -> Space:
        return Box(-np.inf, np.inf, self.env.observation_space(params).shape)


def grayscale(env: Environment, *, keep_dim: bool = False) -> Environment:
    """Images without colour: (H, W), or (H, W, 1) with `keep_dim`."""
    _check_image(env)
    return apply_transform(lambda inner: Grayscale(inner, bool(keep_dim)), env)


class Grayscale(ObservationTransform):
    keep_dim: bool

    def observe(self, memory: Any, obs: Any, params: Any) -> tuple[Any, Any]:
        gray = jnp.round(jnp.asarray(obs, jnp.float32) @ jnp.asarray(LUMA)).astype(jnp.uint8)
        return (gray[..., None] if self.keep_dim else gray), memory

    def observation_space(self, params: Any) -> Space:
        shape = (self.env.observation_space(params).shape or ())[:2]
        return Box(0, 255, (*shape, 1) if self.keep_dim else shape, np.uint8)


def resize(env: Environment, height: int, width: int) -> Environment:
    """Images resized with antialiasing."""
    size = check_count("height", height), check_count("width", width)
    _check_image(env, colour=False)
    return apply_transform(lambda inner: Resize(inner, *size), env)


class Resize(ObservationTransform):
    height: int
    width: int

    def observe(self, memory: Any, obs: Any, params: Any) -> tuple[Any, Any]:
        shape = (self.height, self.width, *obs.shape[2:])
        pixels = jax.image.resize(obs.astype(jnp.float32), shape, "linear")
        return jnp.clip(jnp.round(pixels), 0, 255).astype(jnp.uint8), memory

    def observation_space(self, params: Any) -> Space:
        shape = (self.env.observation_space(params).shape or ())[2:]
        return Box(0, 255, (self.height, self.width, *shape), np.uint8)


def _check_image(env: Environment, colour: bool = True) -> None:
    space = env.observation_space(env.default_params())
    shape = space.shape or ()
    valid = len(shape) == 3 and shape[2] == 3 if colour else len(shape) in (2, 3)
    if not valid or space.dtype != np.uint8:
        raise ValidationError("observation_space", space, "a uint8 image, (H, W, 3)" if colour else "a uint8 image")
