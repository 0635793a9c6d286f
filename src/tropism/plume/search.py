"""Search: run a strategy for many seeded episodes, compiled, and report which found the source."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tropism.core.environment import Environment
from tropism.core.episode import Timestep
from tropism.core.params import override
from tropism.core.rollout.episodes import run_episodes
from tropism.core.rollout.policy import as_policy
from tropism.core.search_task import rate_interval
from tropism.errors import ValidationError
from tropism.plume.scene import AgentPose


class Outcome(eqx.Module):
    """The results of all episodes."""

    found: Bool[Array, "*episodes"]
    steps: Int[Array, "*episodes"]
    reward: Float[Array, "*episodes"]  # summed
    path_length: Float[Array, "*episodes"]
    start: Float[Array, "*episodes 2"]
    end: Float[Array, "*episodes 2"]
    path: Float[Array, "moments *episodes 2"] | None  # positions from the start; constant after the end of an episode

    @property
    def success_rate(self) -> Float[Array, ""]:
        return self.found.mean()

    @property
    def efficiency(self) -> Float[Array, " episodes"]:
        """The straight distance from start to end over the path length."""
        straight = jnp.sqrt(jnp.sum((self.end - self.start) ** 2, -1))
        return straight / jnp.maximum(self.path_length, 1e-9)

    def success_interval(self, z: float = 1.96) -> tuple[float, float]:
        """Wilson's interval of the success rate, 95 % by default."""
        return rate_interval(float(self.success_rate), self.found.shape[0], z)


def search(
    env: Environment, policy: Any, seed: int, num_episodes: int, *, params: Any = None, paths: bool = False
) -> Outcome:
    """Run a strategy for `num_episodes` episodes in a plume environment.

    Episode i is that of a `Session` reset with `seed + i`. `params` are the environment's or a dict of
    those that differ; `paths` stores the positions of the agents.
    """
    policy = as_policy(policy)
    _check(env)
    params = override(env.default_params(), {} if params is None else params)
    moments = int(params.max_steps) + 1 if paths else 0
    done = run_episodes(env, policy, seed, num_episodes, params, _track, moments)
    found, path_length, start, end = done.probe_values
    return Outcome(found, done.steps, done.reward, path_length, start, end, done.trace[3] if paths else None)


def _track(previous: Any, state: Any, timestep: Timestep) -> tuple[Any, Any, Any, Any]:
    """`(found, path length, start, current position)`."""
    agent = _agent_pose(state)
    if previous is None:
        return jnp.bool_(False), jnp.zeros_like(agent.x), agent.xy, agent.xy
    _, path_length, start, _ = previous
    return timestep.info["goal_reached"], path_length + jnp.sqrt(jnp.sum(agent.velocity**2)), start, agent.xy


def _agent_pose(state: Any) -> AgentPose:
    match state:
        case object(agent=AgentPose() as agent):
            return agent
        case object(inner=inner):  # a transform's
            return _agent_pose(inner)
        case _:
            raise ValidationError("env", state, "a plume environment")


def _check(env: Any) -> None:
    if not isinstance(env, Environment) or not env.pure:
        raise ValidationError("env", env, "a pure environment")
