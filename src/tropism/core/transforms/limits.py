"""Transforms of time, reward and params: time_limit, scale_reward, episode_stats, randomize_params."""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any
from zlib import crc32

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, Int

from tropism.core.environment import Environment, Info
from tropism.core.episode import Timestep
from tropism.core.params import replace_at, value_at
from tropism.core.spaces.space import check_count
from tropism.core.transforms.auto_reset import apply_transform
from tropism.core.transforms.transform import EPISODE_STATS, Transform, TransformState
from tropism.errors import ValidationError

PARAMS_STREAM = 2**32 - 2  # folded into the reset's key: the environment draws from another stream


def time_limit(env: Environment, max_steps: int) -> Environment:
    """Truncate every episode after `max_steps` steps."""
    limit = check_count("max_steps", max_steps)
    return apply_transform(lambda inner: TimeLimit(inner, limit), env)


class TimeLimit(Transform):
    max_steps: int

    def start(self, key: Any, memory: Any, params: Any) -> Int[Array, ""]:
        return jnp.int32(0)

    def after(self, memory: Any, timestep: Timestep, params: Any) -> tuple[Timestep, Any]:
        time = memory + 1
        return timestep._replace(truncated=timestep.truncated | (time >= self.max_steps)), time


def scale_reward(env: Environment, factor: float) -> Environment:
    """Multiply every reward by `factor`."""
    if isinstance(factor, bool) or not isinstance(factor, Real) or factor != factor:
        raise ValidationError("factor", factor, "a number, not NaN")
    return apply_transform(lambda inner: ScaleReward(inner, float(factor)), env)


class ScaleReward(Transform):
    factor: float

    def after(self, memory: Any, timestep: Timestep, params: Any) -> tuple[Timestep, Any]:
        return timestep._replace(reward=timestep.reward * self.factor), memory


def episode_stats(env: Environment) -> Environment:
    """Add the return and length of the episode so far to `info`, as `episode_return`, `episode_length`.

    At a step with `done` they are those of the finished episode, under `auto_reset` too.
    """
    return apply_transform(EpisodeStats, env)


class EpisodeSums(eqx.Module):
    """Sums over one episode."""

    total: Float[Array, ""]
    length: Int[Array, ""]


class EpisodeStats(Transform):
    def start(self, key: Any, memory: Any, params: Any) -> EpisodeSums:
        return EpisodeSums(jnp.float32(0), jnp.int32(0))

    def after(self, memory: EpisodeSums, timestep: Timestep, params: Any) -> tuple[Timestep, EpisodeSums]:
        return timestep, EpisodeSums(memory.total + timestep.reward, memory.length + 1)

    def info(self, state: TransformState, params: Any) -> Info:
        stats = zip(EPISODE_STATS, (state.memory.total, state.memory.length), strict=True)
        return {**super().info(state, params), **dict(stats)}


Distribution = tuple[float, float] | Callable[[Any], Any]


def randomize_params(env: Environment, distributions: Mapping[str, Distribution]) -> Environment:
    """Draw some params for each episode: a `(low, high)` pair is uniform, a function takes a key.

    Nested params have dotted names such as "field.sigma".
    """
    if not isinstance(distributions, Mapping) or not distributions:
        raise ValidationError(
            "distributions", distributions, "a dict of param names to (low, high) or a function of a key"
        )
    defaults = env.default_params()
    for name, distribution in distributions.items():
        value_at(defaults, str(name), "distributions")
        if not callable(distribution) and not _is_range(distribution):
            raise ValidationError(
                f"distributions[{name!r}]", distribution, "(low, high) with low <= high, or a function of a key"
            )
    chosen = tuple((name, d if callable(d) else tuple(d)) for name, d in sorted(distributions.items()))
    return apply_transform(lambda inner: RandomizeParams(inner, chosen), env)


def _is_range(pair: Any) -> bool:
    return (
        isinstance(pair, tuple | list)
        and len(pair) == 2
        and all(isinstance(x, Real) for x in pair)
        and pair[0] <= pair[1]
    )


class RandomizeParams(Transform):
    distributions: tuple[tuple[str, Any], ...]

    def start(self, key: Any, memory: Any, params: Any) -> dict[str, Any]:
        """The memory is the drawn params."""
        stream = random.fold_in(key, PARAMS_STREAM)
        # By name, so that two nested transforms of this kind do not draw the same numbers.
        return {name: _draw(d, random.fold_in(stream, crc32(name.encode()))) for name, d in self.distributions}

    def inner_params(self, memory: Any, params: Any) -> Any:
        for name, value in memory.items():
            params = replace_at(params, name, value)
        return params


def _draw(distribution: Any, key: Any) -> Any:
    if callable(distribution):
        return jnp.asarray(distribution(key))
    low, high = distribution
    return random.uniform(key, minval=low, maxval=high)
