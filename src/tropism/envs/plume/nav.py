"""PlumeNav: find the source of an odour plume."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, ArrayLike, Float

from tropism.core.adapters.language import Language
from tropism.core.environment import Environment, EnvState, Info, check_options
from tropism.core.params import EnvParams
from tropism.core.spaces import Discrete, Space
from tropism.core.spaces.space import check_count
from tropism.envs.plume.arguments import (
    check_inside,
    is_whole,
    validate_flag,
    validate_non_negative,
    validate_part,
    validate_point,
    validate_size,
)
from tropism.envs.plume.presets import plume_preset
from tropism.envs.plume.steps import FIELD, PRIVATE_INFO, SENSOR, PureSteps, search_info
from tropism.errors import ValidationError
from tropism.plume import checks, picture
from tropism.plume.fields import Field, Gaussian, PlumeRecording, share
from tropism.plume.motion import Cardinal, Motion
from tropism.plume.rewards import Reward, SparseGoal
from tropism.plume.scene import AgentPose, Arena, Mask, Scene, pair
from tropism.plume.search import Outcome, search
from tropism.plume.sensors import Concentration, Sensor
from tropism.plume.start import Start
from tropism.plume.strategies import Strategy
from tropism.plume.strategies.catalog import NAMES, make_strategy

HELD_OUT = 1 << 30  # changes the seed of a shared realisation for evaluations
ROUNDING = 1e-6  # relative difference of two durations that are equal


class PlumeNavParams(EnvParams):
    """The numbers of all parts; those of a part have dotted names, as in `params={"field.sigma": 30.0}`."""

    field: Field
    sensor: Sensor
    motion: Motion
    reward: Reward
    start: Start
    arena: Arena
    goal_radius: ArrayLike  # length units
    max_steps: ArrayLike  # steps until truncation
    max_stray: ArrayLike | None = None  # length units from the nearest puff

    def check_numbers(self) -> None:
        step_duration(self.field, self.motion, self.sensor)
        if self.max_stray is not None:
            checks.require_positive(max_stray=self.max_stray)
        checks.require_non_negative(goal_radius=self.goal_radius)
        checks.require_positive(max_steps=self.max_steps)
        checks.require_inside(self.arena.low, self.arena.high, source=self.field.source)


class PlumeNavState(EnvState):
    agent: AgentPose
    field: Any
    sensor: Any
    trail: Float[Array, "steps 2"]  # the last positions, oldest first; empty by default


@plume_preset
class PlumeNav(Environment):
    """Composed of parts, whose numbers become params.

    Reward: by default 1 at the source, 0 otherwise.

    Ends: terminated within `goal_radius` of the source, and farther than `max_stray` from the nearest puff if that is
    given; truncated after `max_steps` steps.

    Field, motion and sensor have the same duration of a step.

    `low` and `high` bound the arena; `grid_size` is (width, height) of the raster on which it is drawn and sensed;
    its corners are the default bounds. The default field is a Gaussian around the centre. `obstacles` is
    a (height, width) mask. `trail` is the number of past positions in a picture. With `shared`, the plume is
    simulated once, from the seed `realisation`, and all agents of a batch share it, each episode starting at another
    time of it; evaluations use another realisation. Otherwise each agent has its own.
    """

    private_info = PRIVATE_INFO

    field: Field | PlumeRecording
    sensor: Sensor
    motion: Motion
    reward: Reward
    start: Start
    grid_size: tuple[int, int]
    low: tuple[float, float]
    high: tuple[float, float]
    obstacles: Mask | None
    goal_radius: float
    max_steps: int
    trail: int
    shared: bool
    realisation: int
    max_stray: float | None

    def __init__(
        self,
        field: Field | PlumeRecording | None = None,
        sensor: Sensor = Concentration(),
        motion: Motion = Cardinal(),
        reward: Reward = SparseGoal(),
        start: Start = Start(),
        grid_size: Any = (128, 128),
        low: Any = None,
        high: Any = None,
        obstacles: Any = None,
        goal_radius: Any = 5.0,
        max_steps: Any = 1000,
        trail: Any = 0,
        shared: bool = False,
        realisation: Any = 0,
        max_stray: Any = None,
    ):
        self.grid_size = validate_size(grid_size)
        width, height = self.grid_size
        field = Gaussian.for_grid(width, height) if field is None else field
        self.field = validate_part("field", field, Field, PlumeRecording)
        self.sensor = validate_part("sensor", sensor, Sensor)
        self.motion = validate_part("motion", motion, Motion)
        self.reward = validate_part("reward", reward, Reward)
        self.start = validate_part("start", start, Start)
        self.low = (0.0, 0.0) if low is None else validate_point("low", low)
        self.high = (self.grid_size[0] - 1.0, self.grid_size[1] - 1.0) if high is None else validate_point("high", high)
        self.obstacles = None if obstacles is None else Mask(obstacles, self.shape)
        self.goal_radius = validate_non_negative("goal_radius", goal_radius)
        self.max_steps = check_count("max_steps", max_steps)
        self.trail = check_count("trail", trail, 0)
        self.shared = validate_flag("shared", shared)
        self.realisation = check_count("realisation", realisation, 0)
        self.max_stray = None if max_stray is None else validate_non_negative("max_stray", max_stray)
        step_duration(_clock_field(self.field), self.motion, self.sensor)
        self._check_bounds()
        self._check_place("source", source_point(self.field))
        self._check_start()
        if isinstance(self.field, Field):
            self.field.check_arena(self.low, self.high)
        if self.max_stray is not None or self.start.needs_puffs:
            self._check_puffs()

    def with_parts(self, **parts: Any) -> "PlumeNav":
        """The same search with other arguments."""
        arguments = {each.name: getattr(self, each.name) for each in fields(self)}
        arguments["obstacles"] = None if self.obstacles is None else self.obstacles.array
        return PlumeNav(**arguments | parts)

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width) of the raster."""
        return self.grid_size[1], self.grid_size[0]

    def default_params(self) -> PlumeNavParams:
        mask = None if self.obstacles is None else jnp.asarray(self.obstacles.array)
        arena = Arena(self.low, self.high, mask, self.shape)
        parts = (self._playable_field(self.realisation), self.sensor, self.motion, self.reward, self.start)
        return PlumeNavParams(*parts, arena, self.goal_radius, self.max_steps, self.max_stray)

    def evaluation_params(self, params: Any) -> Any:
        """Those with another realisation of a shared plume."""
        if not self.shared:
            return params
        field = self._playable_field(self.realisation ^ HELD_OUT)
        return replace(params, field=field.with_source(params.field.source))

    def _playable_field(self, realisation: int) -> Field:
        return playable_field(self.field, self.max_steps if self.shared else 0, realisation)

    def reset(self, key: Any, params: Any) -> tuple[Any, PlumeNavState]:
        field = params.field.init(random.fold_in(key, FIELD))
        source = pair(params.field.source_at(field))
        puffs = params.field.puffs(field) if params.start.needs_puffs else None
        agent = params.start.place(key, params.arena, source, params.goal_radius, self.motion.on_grid, puffs)
        agent = replace(agent, heading=params.motion.initial_heading(agent.heading))
        scene = Scene(agent, params.arena, params.field, field)
        memory = params.sensor.start(params.arena.shape)
        obs, memory = params.sensor.sense(random.fold_in(key, SENSOR), memory, scene)
        trail = jnp.broadcast_to(agent.xy, (self.trail, 2))
        return obs, PlumeNavState(jnp.int32(0), agent, field, memory, trail)

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        return PureSteps(self, key, params).take(state, action)

    def scene(self, state: Any, params: Any) -> Scene:
        return Scene(state.agent, params.arena, params.field, state.field)

    def info(self, state: Any, params: Any) -> Info:
        scene = self.scene(state, params)
        source = params.field.source_at(scene.field_state)
        position, goal = (self._whole_on_grid(xy) for xy in ((scene.agent.x, scene.agent.y), source))
        reached, concentration = scene.distance <= params.goal_radius, scene.smell(scene.agent.xy)
        heading = jnp.mod(jnp.rad2deg(scene.agent.heading), 360)
        return search_info(reached, position, heading, goal, scene.distance, concentration)

    def _whole_on_grid(self, xy: Any) -> tuple[Any, Any]:
        x, y = (jnp.asarray(side, float) for side in (xy[0], xy[1]))
        return (jnp.round(x).astype(jnp.int32), jnp.round(y).astype(jnp.int32)) if self.motion.on_grid else (x, y)

    @property
    def reset_options(self) -> tuple[str, ...]:
        return ("params", "start_location", "source_location")

    def configure(self, params: Any, options: Mapping[str, Any]) -> Any:
        check_options(options, *self.reset_options)
        own = {"start_location", "source_location"}
        params = super().configure(params, {name: options[name] for name in options if name not in own})
        locations = {name: self._validate_location(name, options[name]) for name in own & set(options)}
        if "source_location" in locations:
            params = replace(params, field=params.field.with_source(locations["source_location"]))
        if "start_location" in locations:
            params = replace(params, start=replace(params.start, fixed=1, point=locations["start_location"]))
        return params

    def _validate_location(self, name: str, xy: Any) -> tuple[float, float]:
        point = validate_point(f"options[{name!r}]", xy)
        self._check_place(f"options[{name!r}]", point)
        return point

    def _check_bounds(self) -> None:
        if not all(low < high for low, high in zip(self.low, self.high, strict=True)):
            raise ValidationError("high", self.high, f"above low, {self.low}, in both directions")
        if self.motion.on_grid and not is_whole(self.low + self.high):
            raise ValidationError("low", (self.low, self.high), "whole numbers for low and high: this arena is a grid")

    def _check_place(self, name: str, point: Any) -> None:
        """Check that an agent or a source can be at this point."""
        check_inside(name, point, self.low, self.high)
        if self.motion.on_grid and not is_whole(point):
            raise ValidationError(name, point, "whole numbers: this arena is a grid")
        if self.obstacles is not None:
            arena = Arena(self.low, self.high, None, self.shape)
            column, row = np.asarray(arena.cell(pair(point)))
            if self.obstacles.array[row, column]:
                raise ValidationError(name, point, "a point that is not in an obstacle")

    def _check_start(self) -> None:
        if self.start.fixed:
            return self._check_place("start", self.start.point)
        low = self.low if self.start.low is None else self.start.low
        high = self.high if self.start.high is None else self.start.high
        for corner in (low, high):
            check_inside("start", corner, self.low, self.high)
        if self.motion.on_grid:
            low, high = np.ceil(low), np.floor(high)
        if not np.all(np.less_equal(low, high)):
            raise ValidationError("start", (self.start.low, self.start.high), "a zone with low at most high")
        return None

    def _check_puffs(self) -> None:
        """Raise ValidationError if the field has no puffs."""
        field = _clock_field(self.field)
        jax.eval_shape(lambda: field.puffs(field.init(random.key(0))))

    def observation_space(self, params: Any) -> Space:
        return params.sensor.space(params.arena.shape)

    def action_space(self, params: Any) -> Space:
        return params.motion.action_space

    def render(self, state: Any, params: Any) -> Array:
        return picture.paint(self.scene(state, params), state.trail, params.goal_radius)

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        x, y = (float(side) for side in np.asarray(state.agent.xy))
        heading = float(np.degrees(state.agent.heading))
        return (
            "Find the source of the smell: get within "
            f"{float(params.goal_radius):g} of it in {int(params.max_steps)} steps; +y is up.\n"
            f"You are at ({x:g}, {y:g}), heading {heading:.0f}° (0 is right, 90 is up). "
            f"You sense {_format_values(obs, self.sensor.words())}.\n"
            f"Step {int(state.time)} of {int(params.max_steps)}. {_describe_actions(self.motion)}"
        )

    def agent_position_in_image(self, state: Any, params: Any) -> tuple[float, float]:
        return picture.position_in_image(params.arena, state.agent)

    @property
    def language(self) -> Language:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Language(self.motion.words, self.sensor.words())

    def goal(self, params: Any) -> tuple[tuple[Any, Any], Any]:
        return params.field.source, params.goal_radius

    def background(self, state: Any, params: Any) -> Array:
        return picture.paint_plume(self.scene(state, params))

    def search(self, policy: Any, seed: int, num_episodes: int, params: Any) -> Outcome:
        return search(self, policy, seed, num_episodes, params=params, paths=True)

    def strategies(self, params: Any) -> Mapping[str, Callable[[], Strategy]]:
        return {name: partial(make_strategy, name, self.sensor, self.motion) for name in NAMES}


@cache
def playable_field(field: Field | PlumeRecording, steps: int, seed: int = 0) -> Field:
    """The field to simulate: a Movie for a recording; with `steps`, a shared realisation of twice that length, in
    whose first half episodes start, so that none reaches its end."""
    field = field.field() if isinstance(field, PlumeRecording) else field
    return share(field, random.key(seed), 2 * steps + 1, num_starts=steps + 1) if steps else field


def step_duration(field: Field, motion: Motion, sensor: Sensor) -> Any:
    """Seconds per step, on which field, motion and sensor must agree; None if none of them depends on it."""
    durations = {"field": field.step_duration, "motion": motion.step_duration}
    durations |= {f"sensor {number}": seconds for number, seconds in enumerate(sensor.step_durations())}
    known = {name: seconds for name, seconds in durations.items() if seconds is not None}
    plain = {name: float(seconds) for name, seconds in known.items() if isinstance(seconds, int | float | np.generic)}
    if plain and max(plain.values()) > min(plain.values()) * (1 + ROUNDING):
        raise ValidationError("dt", plain, "the same seconds per step for field, motion and sensor")
    return next(iter(known.values()), None)


def _clock_field(field: Field | PlumeRecording) -> Field:
    return playable_field(field, 0) if isinstance(field, PlumeRecording) else field


def source_point(field: Field | PlumeRecording) -> Any:
    return field.source_point if isinstance(field, PlumeRecording) else field.source


def _describe_actions(motion: Motion) -> str:
    """The description of the actions."""
    words, space = ", ".join(motion.words), motion.action_space
    if isinstance(space, Discrete):
        return f"Actions: {words}."
    return f"Action: [{words}], JSON, from {_format_values(space.low)} to {_format_values(space.high)}."


def _format_values(obs: Any, words: tuple[str, ...] = ()) -> str:
    if words and np.shape(obs) == (len(words),):
        return ", ".join(f"{word} {float(value):.4g}" for word, value in zip(words, obs, strict=True))
    if isinstance(obs, dict):
        return "; ".join(f"{name} {_format_values(value)}" for name, value in obs.items())
    return np.array2string(np.asarray(obs), precision=4, separator=", ", threshold=32).replace("\n", "")
