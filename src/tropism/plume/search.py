"""Search: run a strategy for many seeded episodes, compiled, and see who found the source."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jaxtyping import Array, Bool, Float, Int, UInt32

from tropism.core.environment import Environment, override
from tropism.core.episode import Episode, advance, begin, check_seed, seed_words
from tropism.core.spaces.space import check_count
from tropism.errors import ValidationError
from tropism.plume.scene import Agent
from tropism.plume.strategies.strategy import Strategy

STRATEGY = 2**32 - 2  # folded into the key, beyond all steps: a strategy's draws are not its environment's


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
        n, rate = self.found.shape[0], float(self.success_rate)
        middle = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * (rate * (1 - rate) / n + z**2 / (4 * n**2)) ** 0.5
        return max(0.0, middle - half), min(1.0, middle + half)


def search(
    env: Environment, strategy: Strategy, seed: int, num_episodes: int, *, params: Any = None, paths: bool = False
) -> Outcome:
    """Let a strategy search `num_episodes` times in a plume environment.

    Episode i is the one that a `Session` with the seed `seed + i` begins. `params` are the environment's or a dict of
    those that differ; `paths` keeps where the agents went.
    """
    _check(env, strategy, num_episodes)
    params = override(env.default_params(), {} if params is None else params)
    moments = int(params.max_steps) + 1 if paths else 0
    seeds = np.stack([seed_words(check_seed(seed) + episode) for episode in range(num_episodes)])
    strategy, params, seeds = jax.tree.map(jnp.asarray, (strategy, params, seeds))
    return _search(env, strategy, params, seeds, moments)


class _Lane(eqx.Module):
    """One episode, and what is known of it; steps after its end do not change that."""

    episode: Episode
    memory: Any
    obs: Any
    ended: Bool[Array, ""]
    outcome: Outcome


@eqx.filter_jit
def _search(
    env: Environment, strategy: Strategy, params: Any, seeds: UInt32[Array, "episodes 2"], moments: int
) -> Outcome:
    lanes = jax.vmap(lambda seed: _first(env, strategy, params, seed))(seeds)
    path = jnp.broadcast_to(lanes.outcome.start, (moments, *lanes.outcome.start.shape))

    def step(carry: Any) -> Any:
        time, lanes, path = carry
        lanes = jax.vmap(lambda lane: _next(env, strategy, params, lane))(lanes)
        return time + 1, lanes, path.at[time + 1].set(lanes.outcome.end, mode="drop") if moments else path

    def searching(carry: Any) -> Any:
        return ~carry[1].ended.all()

    time, lanes, path = lax.while_loop(searching, step, (jnp.int32(0), lanes, path))
    rest = jnp.arange(moments)[:, None, None] > time
    return replace(lanes.outcome, path=jnp.where(rest, lanes.outcome.end, path) if moments else None)


def _first(env: Environment, strategy: Strategy, params: Any, seed: UInt32[Array, " 2"]) -> _Lane:
    episode, timestep = begin(env, seed, params)
    xy = _agent(episode.state).xy
    none = jnp.float32(0)
    outcome = Outcome(jnp.bool_(False), jnp.int32(0), none, jnp.zeros_like(xy[0]), xy, xy, None)
    return _Lane(episode, strategy.init(_strategy_key(episode)), timestep.obs, jnp.bool_(False), outcome)


def _next(env: Environment, strategy: Strategy, params: Any, lane: _Lane) -> _Lane:
    key = random.fold_in(_strategy_key(lane.episode), lane.episode.time)
    action, memory = strategy.act(key, lane.memory, lane.obs)
    episode, timestep = advance(env, lane.episode, action, params)
    agent, so_far = _agent(episode.state), lane.outcome
    after = Outcome(
        timestep.info["goal_reached"],
        so_far.steps + 1,
        so_far.reward + timestep.reward,
        so_far.path_length + jnp.sqrt(jnp.sum(agent.velocity**2)),
        so_far.start,
        agent.xy,
        None,
    )
    outcome = jax.tree.map(lambda old, new: jnp.where(lane.ended, old, new), so_far, after)
    return _Lane(episode, memory, timestep.obs, lane.ended | timestep.terminated | timestep.truncated, outcome)


def _strategy_key(episode: Episode) -> Any:
    return random.fold_in(random.wrap_key_data(episode.key, impl="threefry2x32"), STRATEGY)


def _agent(state: Any) -> Agent:
    match state:
        case object(agent=Agent() as agent):
            return agent
        case object(inner=inner):  # a transform's
            return _agent(inner)
        case _:
            raise ValidationError("env", state, "a plume environment")


def _check(env: Any, strategy: Any, num_episodes: Any) -> None:
    if not isinstance(env, Environment) or not env.traced:
        raise ValidationError("env", env, "a pure environment")
    if not isinstance(strategy, Strategy):
        raise ValidationError("strategy", strategy, "a Strategy")
    check_count("num_episodes", num_episodes)
