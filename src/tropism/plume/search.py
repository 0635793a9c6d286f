"""Search: run a strategy for many seeded episodes, compiled, and see who found the source."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tropism.core.environment import Environment, override
from tropism.core.episode import Timestep
from tropism.core.rollout.episodes import run_episodes
from tropism.errors import ValidationError
from tropism.plume.scene import Agent
from tropism.plume.strategies.strategy import Strategy


class Outcome(eqx.Module):
    """What became of each episode."""

    found: Bool[Array, "*episodes"]
    steps: Int[Array, "*episodes"]
    reward: Float[Array, "*episodes"]  # summed
    path_length: Float[Array, "*episodes"]
    start: Float[Array, "*episodes 2"]
    end: Float[Array, "*episodes 2"]
    path: Float[Array, "moments *episodes 2"] | None  # where the agents were, from the start; they rest where they end

    @property
    def success_rate(self) -> Float[Array, ""]:
        return self.found.mean()

    @property
    def efficiency(self) -> Float[Array, " episodes"]:
        """The straight way from start to end over the way gone."""
        straight = jnp.sqrt(jnp.sum((self.end - self.start) ** 2, -1))
        return straight / jnp.maximum(self.path_length, 1e-9)

    def success_interval(self, z: float = 1.96) -> tuple[float, float]:
        """Wilson's interval of the success rate, 95 % by default."""
        return rate_interval(float(self.success_rate), self.found.shape[0], z)


def rate_interval(rate: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of the rate of n trials."""
    middle = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * (rate * (1 - rate) / n + z**2 / (4 * n**2)) ** 0.5
    return max(0.0, min(rate, middle - half)), min(1.0, max(rate, middle + half))


def search(
    env: Environment, strategy: Strategy, seed: int, num_episodes: int, *, params: Any = None, paths: bool = False
) -> Outcome:
    """Let a strategy search `num_episodes` times in a plume environment.

    Episode i is the one that a `Session` with the seed `seed + i` begins. `params` are the environment's or a dict of
    those that differ; `paths` keeps where the agents went.
    """
    _check(env, strategy)
    params = override(env.default_params(), {} if params is None else params)
    moments = int(params.max_steps) + 1 if paths else 0
    done = run_episodes(env, strategy, seed, num_episodes, params, _note, moments)
    found, gone, start, end = done.probe_values
    return Outcome(found, done.steps, done.reward, gone, start, end, done.trace[3] if paths else None)


def _note(so_far: Any, state: Any, timestep: Timestep) -> tuple[Any, Any, Any, Any]:
    """`(found, path length, start, here)`."""
    agent = _agent(state)
    if so_far is None:
        return jnp.bool_(False), jnp.zeros_like(agent.x), agent.xy, agent.xy
    _, gone, start, _ = so_far
    return timestep.info["goal_reached"], gone + jnp.sqrt(jnp.sum(agent.velocity**2)), start, agent.xy


def _agent(state: Any) -> Agent:
    match state:
        case object(agent=Agent() as agent):
            return agent
        case object(inner=inner):  # a transform's
            return _agent(inner)
        case _:
            raise ValidationError("env", state, "a plume environment")


def _check(env: Any, strategy: Any) -> None:
    if not isinstance(env, Environment) or not env.traced:
        raise ValidationError("env", env, "a pure environment")
    if not isinstance(strategy, Strategy):
        raise ValidationError("strategy", strategy, "a Strategy")
