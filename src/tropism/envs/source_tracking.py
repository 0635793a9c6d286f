"""SourceTracking: find a source on a grid by the odour that it emits, one hit at a time (Vergassola et al. 2007)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, ArrayLike, Float, Int

from tropism.core.adapters.language import Language
from tropism.core.environment import Environment, EnvState, Info, outcome
from tropism.core.params import EnvParams
from tropism.core.registry import preset
from tropism.core.search_task import SearchTimes
from tropism.core.spaces import Box, Dict, Discrete, Space
from tropism.core.spaces.space import check_count
from tropism.errors import ValidationError
from tropism.plume import checks
from tropism.plume.tracking import belief, picture, times
from tropism.plume.tracking.hits import HitModel, IsotropicHits, WindyHits
from tropism.plume.tracking.strategies import STRATEGIES, BeliefStrategy

ACTIONS = ("left", "right", "down", "up", "back", "front")  # -x, +x, -y, +y, -z, +z
OBSERVATIONS = ("hits", "belief")
NOT_FOUND = 1e-6  # a search without a source ends below this probability that the source is not found yet

tracking_preset = preset(
    "ppo",
    recurrent=True,
    num_envs=128,
    num_steps=32,
    total_steps=1_500_000,
    epochs=3,
    minibatches=8,
    learning_rate=2e-3,
    gamma=1.0,  # episodes end, and their return is minus the search time
    entropy=0.0,
)


class SourceTrackingParams(EnvParams):
    hits: HitModel
    max_steps: ArrayLike  # steps until truncation

    def check_numbers(self) -> None:
        checks.require_positive(max_steps=self.max_steps)


class SourceTrackingState(EnvState):
    position: Int[Array, " dims"]
    source: Int[Array, " dims"]  # -1 if no source is drawn
    belief: Float[Array, "..."]  # the probability of each cell to contain the source, given all hits
    hits: Int[Array, ""]  # in the last step
    not_found: Float[Array, ""]  # the probability that the source is not found yet; with a drawn source, 1 or 0
    hit_map: Int[Array, "..."]  # the last number of hits in each cell, -1 if it was not visited


class SourceTracking(Environment):
    """Reward: minus the probability that the source was not found before the step; with a drawn source, -1.

    The return is therefore minus the time to find the source.

    Ends: terminated at the source, or, without a drawn source, when it is found with a probability of 1 - 1e-6;
    truncated after `max_steps` steps.

    The belief starts uniform, is updated by the hits at `start`, and the source is drawn from it. The number of these
    hits is `first_hits`, or, if None, drawn among those from 1 on. With `draw_source=False` there is no source: each
    number of hits is drawn from the belief, under the condition that the source is not at the agent's position.
    `num_hits` is the number of distinguishable numbers of hits, 0 included. `observation` is "hits", or "belief", which
    adds the belief and the agent's position.
    """

    hits: HitModel
    shape: tuple[int, ...]
    num_hits: int
    start: tuple[int, ...]
    max_steps: int
    first_hits: int | None
    draw_source: bool
    observation: str

    def __init__(
        self,
        hits: HitModel,
        shape: tuple[int, ...],
        num_hits: int,
        start: tuple[int, ...],
        max_steps: int,
        first_hits: int | None = None,
        draw_source: Any = True,
        observation: Any = "hits",
    ):
        if not isinstance(draw_source, bool):
            raise ValidationError("draw_source", draw_source, "True or False")
        if observation not in OBSERVATIONS:
            raise ValidationError("observation", observation, f"one of {', '.join(OBSERVATIONS)}")
        self.hits, self.shape, self.start = hits, shape, start
        self.num_hits = check_count("num_hits", num_hits, 2)
        self.max_steps = check_count("max_steps", max_steps)
        self.first_hits, self.draw_source, self.observation = first_hits, draw_source, observation

    @property
    def language(self) -> Language:  # pyright: ignore[reportIncompatibleVariableOverride]
        names = ("hits",) if self.observation == "hits" else ()
        return Language(ACTIONS[: 2 * len(self.shape)], names)

    def default_params(self) -> SourceTrackingParams:
        return SourceTrackingParams(self.hits, self.max_steps)

    def table(self, params: Any) -> belief.HitTable:
        return belief.HitTable.of(params.hits, self.shape, self.num_hits, self.start)

    def reset(self, key: Any, params: Any) -> tuple[Any, SourceTrackingState]:
        table = self.table(params)
        hit_key, source_key = random.split(key)
        hits = jnp.int32(self.first_hits or 0)
        if self.first_hits is None:
            hits = belief.draw_index(hit_key, belief.first_hit_weights(params.hits, table)).astype(jnp.int32)
        first = table.after_first_hit()[hits]
        position = jnp.array(self.start, jnp.int32)
        source = jnp.full_like(position, -1)
        if self.draw_source:
            cell = jnp.unravel_index(belief.draw_index(source_key, first.ravel()), self.shape)
            source = jnp.stack(cell).astype(jnp.int32)
        hit_map = jnp.full(self.shape, -1, jnp.int32).at[self.start].set(hits)
        state = SourceTrackingState(
            jnp.int32(0), position, source, first, hits, jnp.ones_like(first[self.start]), hit_map
        )
        return self.observe(state), state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        table = self.table(params)
        position = table.move(state.position, action)
        before = belief.BeliefState(position, state.belief)
        if self.draw_source:
            end = (position == state.source).all().astype(state.not_found.dtype)
            probabilities = table.at_offset(state.source - position)
        else:
            end = state.belief[tuple(position)]
            probabilities = belief.expectations(table.likelihood, state.belief, position)
        hits = belief.draw_index(key, probabilities).astype(jnp.int32) % self.num_hits  # 0 at the source
        not_found = state.not_found * (1 - end)
        found = not_found < NOT_FOUND
        after = belief.posterior(before, jnp.where(found, 0, table.of_hits(hits, position)))
        hit_map = state.hit_map.at[tuple(position)].set(hits)
        after = SourceTrackingState(state.time + 1, position, state.source, after, hits, not_found, hit_map)
        done, info = outcome(found, after.time >= params.max_steps, self.info(after, params))
        return self.observe(after), after, -state.not_found.astype(jnp.float32), done, info

    def observe(self, state: Any) -> Any:
        hits = state.hits.astype(jnp.float32)[None]
        if self.observation == "hits":
            return hits
        return {"belief": state.belief.astype(jnp.float32), "hits": hits, "position": state.position}

    def info(self, state: Any, params: Any) -> Info:
        return {"agent_position": state.position, "not_found": state.not_found}

    def observation_space(self, params: Any) -> Space:
        hits = Box(0, self.num_hits - 1, (1,))
        if self.observation == "hits":
            return hits
        last = np.array(self.shape, np.int32) - 1
        position = Box(np.zeros_like(last), last, dtype=np.int32)
        return Dict({"belief": Box(0, 1, self.shape), "hits": hits, "position": position})

    def action_space(self, params: Any) -> Discrete:
        return Discrete(2 * len(self.shape))

    def render(self, state: Any, params: Any) -> Array:
        return picture.paint(state.belief, state.hit_map, state.position, state.source)

    def agent_position_in_image(self, state: Any, params: Any) -> tuple[float, float]:
        return picture.position_in_image(self.shape, np.asarray(state.position))

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        position, hits = tuple(np.asarray(state.position).tolist()), int(state.hits)
        size = " by ".join(map(str, self.shape))
        return (
            f"Find the source of the odour on a grid of {size} cells, in at most {int(params.max_steps)} steps.\n"
            f"You are at {position}; cells count from 0. You sense {hits} {'hit' if hits == 1 else 'hits'} of odour "
            f"(at most {self.num_hits - 1}); the nearer the source, the more.\n"
            f"Step {int(state.time)}. Actions: {', '.join(self.language.actions)}."
        )

    def strategies(self, params: Any) -> Mapping[str, Callable[[], BeliefStrategy]]:
        observes_belief = self.observation == "belief"
        return {name: partial(_make, kind, self, params, observes_belief) for name, kind in STRATEGIES.items()}

    def search_times(self, policy: Any, seed: int, num_episodes: int, params: Any) -> SearchTimes:
        return times.search_times(self, policy, seed, num_episodes, params)


def _make(kind: Any, env: SourceTracking, params: Any, observes_belief: bool) -> BeliefStrategy:
    return kind(env.table(params), observes_belief)


def isotropic(
    dims: int = 2,
    length: float = 1.0,
    rate: float = 1.0,
    size: int | None = None,
    num_hits: int | None = None,
    draw_source: Any = True,
    observation: str = "hits",
) -> SourceTracking:
    """Find the source of odour hits on a grid without wind, in 1, 2 or 3 dimensions (Loisy & Eloy 2022).

    `length` (λ/Δx) is the distance in cells that odour travels, `rate` (R Δt) the emissions in a step. The default of
    `size`, cells along each axis, is the smallest odd number that contains the source with a probability of 0.999.

    Reward: minus the probability that the source was not found before the step; with a drawn source, -1.

    Ends: terminated at the source; truncated after `max_steps` steps.
    """
    if dims not in (1, 2, 3):
        raise ValidationError("dims", dims, "1, 2 or 3")
    hits = IsotropicHits(length, rate)
    num_hits = hits.default_num_hits(dims) if num_hits is None else check_count("num_hits", num_hits, 2)
    size = hits.default_size(dims, num_hits) if size is None else check_count("size", size, 3)
    steps, start = hits.default_max_steps(dims, size), (size // 2,) * dims
    return SourceTracking(hits, (size,) * dims, num_hits, start, steps, None, draw_source, observation)


@tracking_preset
def line(draw_source: Any = True, observation: str = "hits") -> SourceTracking:
    """Find the source of odour hits on a line of 33 cells.

    Reward: minus the probability that the source was not found before the step; with a drawn source, -1.

    Ends: terminated at the source; truncated after `max_steps` steps.
    """
    return isotropic(1, 2.0, 2.0, 33, 4, draw_source, observation)


@tracking_preset
def small(draw_source: Any = True, observation: str = "hits") -> SourceTracking:
    """Find the source of odour hits on a grid of 19 by 19 cells.

    Reward: minus the probability that the source was not found before the step; with a drawn source, -1.

    Ends: terminated at the source; truncated after `max_steps` steps.
    """
    return isotropic(2, 1.0, 1.0, 19, 3, draw_source, observation)


def large(draw_source: Any = True, observation: str = "hits") -> SourceTracking:
    """Find the source of odour hits on a grid of 53 by 53 cells.

    Reward: minus the probability that the source was not found before the step; with a drawn source, -1.

    Ends: terminated at the source; truncated after `max_steps` steps.
    """
    return isotropic(2, 3.0, 2.0, 53, 4, draw_source, observation)


def windy(rate: float = 2.5, draw_source: Any = True, observation: str = "hits") -> SourceTracking:
    """Find the source of odour hits upwind, on a grid of 81 by 41 cells (Loisy & Heinonen 2023).

    `rate` is 2.5 for the medium and 0.25 for the low rate of detections.

    Reward: minus the probability that the source was not found before the step; with a drawn source, -1.

    Ends: terminated at the source; truncated after `max_steps` steps.
    """
    return SourceTracking(WindyHits(rate), (81, 41), 2, (65, 20), 10_000, 1, draw_source, observation)
