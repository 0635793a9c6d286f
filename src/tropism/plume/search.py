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
from tropism.plume.motion import Motion
from tropism.plume.receptors import Receptor, Threshold
from tropism.plume.scene import AgentPose
from tropism.plume.sensors import Concat, DictSensor, Odour, OdourMemory, Sensor, SinceWhiff, WhiffRate

ODOUR = 1e-4  # as in the released code of Singh et al. 2023


class Outcome(eqx.Module):
    """The results of all episodes."""

    found: Bool[Array, "*episodes"]
    steps: Int[Array, "*episodes"]
    reward: Float[Array, "*episodes"]  # summed
    path_length: Float[Array, "*episodes"]
    start: Float[Array, "*episodes 2"]
    end: Float[Array, "*episodes 2"]
    shortest: Float[Array, "*episodes"]  # steps of the straight way to the goal at full speed; NaN if not known
    on_odour: Float[Array, "*episodes"]  # share of the steps in which there is odour at the agent
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
    if not isinstance(env, Environment) or not env.pure:
        raise ValidationError("env", env, "a pure environment")
    params = override(env.default_params(), {} if params is None else params)
    threshold = _threshold_of(env, params)
    moments = int(params.max_steps) + 1 if paths else 0
    done = run_episodes(env, policy, seed, num_episodes, params, _Track(threshold), moments)
    found, path_length, start, end, distance, smelled = done.probe_values
    shortest = jnp.ceil(jnp.maximum(distance - params.goal_radius, 0) / params.motion.max_step)
    on_odour = smelled / jnp.maximum(done.steps, 1)
    path = done.trace[3] if paths else None
    return Outcome(found, done.steps, done.reward, path_length, start, end, shortest, on_odour, path)


def odour_threshold(sensor: Any) -> Any:
    """The concentration from which there is odour: that of the sensor if it has a threshold, otherwise `ODOUR`."""
    match sensor:
        case (
            Odour(threshold=threshold)
            | SinceWhiff(threshold=threshold)
            | WhiffRate(threshold=threshold)
            | OdourMemory(threshold=threshold)
            | Threshold(floor=threshold)
        ):
            return threshold
        case Receptor(sensor=inner):
            return odour_threshold(inner)
        case Concat(parts=parts) | DictSensor(parts=parts):
            return next((own for own in map(odour_threshold, parts) if own is not ODOUR), ODOUR)
        case _:
            return ODOUR


class _Track(eqx.Module):
    """The probe of an episode: `(found, path length, start, position, distance to the goal at the start, steps on
    odour)`."""

    threshold: Any

    def __call__(self, previous: Any, state: Any, timestep: Timestep) -> tuple[Any, ...]:
        agent, info = _agent_pose(state), timestep.info
        if previous is None:
            zero = jnp.zeros_like(agent.x)
            return jnp.bool_(False), zero, agent.xy, agent.xy, info["distance_to_goal"], zero
        _, path_length, start, _, distance, smelled = previous
        length = path_length + jnp.sqrt(jnp.sum(agent.velocity**2))
        smells = info["concentration_at_agent"] >= self.threshold
        return info["goal_reached"], length, start, agent.xy, distance, smelled + smells


def _agent_pose(state: Any) -> AgentPose:
    match state:
        case object(agent=AgentPose() as agent):
            return agent
        case object(inner=inner):  # a transform's
            return _agent_pose(inner)
        case _:
            raise ValidationError("env", state, "a plume environment")


def _threshold_of(env: Environment, params: Any) -> Any:
    match params:
        case object(sensor=Sensor() as sensor, motion=Motion()):
            return odour_threshold(sensor)
        case _:
            raise ValidationError("env", env, "a plume environment, such as PlumeNav-v0")
