"""PlumeNav with a user's Python objects as parts: the same search, stepped on the host."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpy.typing import NDArray

from tropism.core.adapters.language import Language
from tropism.core.compiled.program import host_device
from tropism.core.environment import Environment, Info
from tropism.core.episode import host_key, seed_words, step_key
from tropism.core.host import Host
from tropism.core.spaces import Space
from tropism.core.spaces.space import as_array
from tropism.envs.plume.nav import PlumeNav, PlumeNavParams, PlumeNavState
from tropism.envs.plume.parts import HostEpisode, PlumeParts, PlumeView
from tropism.envs.plume.steps import MOTION, PRIVATE_INFO, SENSOR, HostSteps, search_info, take_step
from tropism.errors import StateError, ValidationError
from tropism.plume.scene import AgentPose, Scene, pair
from tropism.plume.user_parts import (
    AgentAtPoint,
    AgentState,
    Coordinates,
    GridSize,
    HostField,
    HostFieldState,
    NeedsHost,
    PlaceholderField,
    Surroundings,
    plume_raster,
    require_finite,
    return_label,
    sample_plume,
)

RNG = -2  # in place of a step number: selects the key of the components' generator
SceneParts = tuple[Any, ...]  # the fields of a Scene, which a compiled part constructs itself


@dataclass(frozen=True)
class PlumeHostState:
    search: "HostSearch"  # its parts run this episode
    episode: HostEpisode
    words: NDArray[Any]  # the seed's
    rng: np.random.Generator
    source: Coordinates
    agent: AgentState
    pose: AgentPose  # the same agent, for library parts
    field: Any = None  # the state of a library field
    memory: Any = ()  # a library sensor's
    concentration: float = 0.0  # concentration at the agent
    distance: float = 0.0  # to the source
    trail: tuple[Coordinates, ...] = ()


class HostSearch:
    """The steps of a `PlumeHost`. A plain class, because Equinox wraps every bound method in a module."""

    def __init__(self, base: PlumeNav, parts: PlumeParts):
        self.base = base
        self.parts = parts
        self.size = GridSize(*base.grid_size)
        self.shape, self.low, self.high, self.trail = base.shape, base.low, base.high, base.trail
        self.on_grid = base.motion.on_grid

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostSearch) and (self.base, self.parts) == (other.base, other.parts)

    def __hash__(self) -> int:
        return hash((self.base, self.parts))

    def reset(self, seed: int, params: Any) -> tuple[Any, PlumeHostState]:
        words, rng = seed_words(seed), np.random.default_rng(host_key(seed, RNG))
        source = Coordinates(*(float(side) for side in params.field.source))
        pose = _start_pose(words, params.start, params.motion, params.arena, source, params.goal_radius)
        agent = self._agent_state(pose, AgentState(Coordinates(0, 0)))
        episode = self.parts.begin_episode(seed, rng, params)
        state = PlumeHostState(self, episode, words, rng, source, agent, pose)
        memory = params.sensor.start(self.shape)
        state = self.update_surroundings(replace(state, memory=memory, trail=(agent.position,) * self.trail), params)
        return self.observe(state, params)

    def step(self, state: PlumeHostState, action: Any, params: Any) -> tuple[Any, ...]:
        self._check_action(action)
        result = take_step(HostSteps(self, params), state, action)
        state.episode.actions.append(action)
        return result

    def info(self, state: PlumeHostState) -> Info:
        position, goal = tuple(state.agent.position), tuple(self.goal(state))
        return search_info(state.agent.goal_reached, position, goal, state.distance, state.concentration)

    def resume(self, state: PlumeHostState) -> PlumeHostState:
        """The state with parts at its step; if they have advanced, copies of them that replay its episode."""
        episode, steps = state.episode, state.agent.step_count
        if episode is self.parts.episode and steps == self.parts.now == len(episode.actions):
            return state
        if episode.initial_parts is None:
            advice = "give each session its own environment"
            message = f"cannot step: the components of this environment run another episode; {advice}"
            raise StateError("episode", steps, advice, message)
        search = HostSearch(self.base, self.parts.at_episode_start(episode))
        _, replayed = search.reset(episode.seed, episode.params)
        for action in episode.actions[:steps]:
            replayed = search.step(replayed, action, episode.params)[1]
        return replayed

    def _check_action(self, action: Any) -> None:
        motion = self.parts.motion
        if hasattr(motion, "validate_action") and not motion.validate_action(action):
            raise ValidationError("action", action, f"one that {type(motion).__name__}.validate_action accepts")

    def move_agent(self, state: PlumeHostState, action: Any, params: Any) -> tuple[AgentState, AgentPose]:
        """The agent after the action; its counters are still those before the step."""
        motion, step = self.parts.motion, state.agent.step_count + 1
        if motion is None:
            pose = self._run(_move, params.motion, (state.words, step, action), (state,), params)
            return self._agent_state(pose, state.agent), pose
        result = motion.process_action(action, replace(state.agent), self.size)
        agent = self._validate_agent(result, state.agent, return_label(motion, "process_action", step))
        return agent, _to_pose(state.pose, agent.position, agent.orientation)

    def _validate_agent(self, result: Any, before: AgentState, name: str) -> AgentState:
        position: Any = getattr(result, "position", None)
        point = as_array((position.x, position.y) if hasattr(position, "x") and hasattr(position, "y") else position)
        if point is None or point.shape != (2,) or not np.all((point >= self.low) & (point <= self.high)):
            expected = f"an agent with a position between {self.low} and {self.high}"
            raise ValidationError(name, result if position is None else position, expected)
        orientation = require_finite(f"the orientation in {name}", getattr(result, "orientation", before.orientation))
        return replace(before, position=Coordinates(*point.tolist()), orientation=orientation)

    def update_surroundings(self, state: PlumeHostState, params: Any) -> PlumeHostState:
        """Update the field, the concentration at the agent, the distance and whether the goal is reached."""
        plume, agent = self.parts.plume, state.agent
        x, y = agent.position
        concentration = sample_plume(plume, x, y, self.parts.now)
        distance = math.dist(agent.position, state.source)
        agent = replace(agent, goal_reached=distance <= float(params.goal_radius))
        field = plume.state if isinstance(plume, PlumeView) else None
        return replace(state, agent=agent, field=field, concentration=concentration, distance=distance)

    def reward(self, state: PlumeHostState, action: Any, after: PlumeHostState, params: Any) -> float:
        reward = self.parts.reward
        if reward is None:
            known = (action, after.agent.goal_reached)
            return float(self._run(_compute_reward, params.reward, known, (state, after), params))
        value = reward.compute_reward(replace(state.agent), action, replace(after.agent), self.parts.plume)
        return require_finite(return_label(reward, "compute_reward", self.parts.now), value)

    def observe(self, state: PlumeHostState, params: Any) -> tuple[Any, PlumeHostState]:
        sensor, step = self.parts.sensor, self.parts.now
        if sensor is None:
            known = (state.words, step, state.memory)
            obs, memory = self._run(_sense, params.sensor, known, (state,), params)
            return jax.tree.map(np.array, obs), replace(state, memory=memory)
        obs = sensor.get_observation(self._surroundings(state, params))
        return params.sensor.space(self.shape).coerce(obs, return_label(sensor, "get_observation", step)), state

    def _surroundings(self, state: PlumeHostState, params: Any) -> Surroundings:
        parts = self.parts
        values = {
            "agent_state": replace(state.agent),
            "concentration_field": parts.plume,
            "wind_field": parts.wind,
            "goal_location": self.goal(state),
            "grid_size": self.size,
            "step_count": state.agent.step_count,
            "max_steps": int(params.max_steps),
            "rng": state.rng,
        }
        return Surroundings(values, lambda: plume_raster(parts.plume, self.shape, parts.now))

    def _run(self, function: Any, part: Any, known: SceneParts, states: tuple[PlumeHostState, ...], params: Any) -> Any:
        """Run a part compiled, unless it uses a plume or a wind that is a Python object."""
        host_only, name = self.parts.host_only, f"{function.__name__} of {type(part).__name__}"
        if name not in host_only:
            try:
                return function(part, *known, *(self._compiled_scene_parts(state, params) for state in states))
            except NeedsHost:
                host_only.add(name)
        return function.__wrapped__(part, *known, *(self.host_scene_parts(state, params) for state in states))

    def _compiled_scene_parts(self, state: PlumeHostState, params: Any) -> SceneParts:
        field, parts = params.field, self.parts
        if parts.owns_wind and not parts.owns_plume:
            field = PlaceholderField(field.source, field)
        return state.pose, params.arena, field, state.concentration if parts.owns_plume else state.field

    def host_scene_parts(self, state: PlumeHostState, params: Any) -> SceneParts:
        field, field_state = params.field, state.field
        if self.parts.owns_plume or self.parts.owns_wind:
            field = HostField(field.source, None if self.parts.owns_plume else field, self.parts, self.shape)
            field_state = HostFieldState(state.agent.step_count, state.agent.position, state.concentration, state.field)
        return state.pose, params.arena, field, field_state

    def _agent_state(self, pose: AgentPose, before: AgentState) -> AgentState:
        """Convert the library's agent to the one passed to user parts."""
        x, y = np.asarray(pose.xy).tolist()
        orientation = float(np.degrees(np.asarray(pose.heading))) % 360.0
        return replace(before, position=self._coordinates(x, y), orientation=orientation)

    def goal(self, state: PlumeHostState) -> Coordinates:
        return self._coordinates(*state.source)

    def _coordinates(self, x: float, y: float) -> Coordinates:
        return Coordinates(round(x), round(y)) if self.on_grid else Coordinates(x, y)


class PlumeHost(Environment):
    """`base` with the components of `parts` in place of some of its own.

    `base` has `UserSensor`, `UserMotion`, `UserReward` and `PlaceholderField` in place of user parts. The user's
    objects run the episode that started last; earlier ones, in other sessions, continue with copies of them.
    """

    host = Host(reseedable=False)
    private_info = PRIVATE_INFO

    search: HostSearch

    def __init__(self, base: PlumeNav, parts: PlumeParts):
        self.search = HostSearch(base, parts)

    @property
    def base(self) -> PlumeNav:
        return self.search.base

    @property
    def parts(self) -> PlumeParts:
        return self.search.parts

    def default_params(self) -> PlumeNavParams:
        return self.base.default_params()

    @property
    def reset_options(self) -> tuple[str, ...]:
        return self.base.reset_options

    def configure(self, params: Any, options: Mapping[str, Any]) -> Any:
        return self.base.configure(params, options)

    def reset(self, key: int, params: Any) -> tuple[Any, PlumeHostState]:
        with jax.default_device(host_device()):
            return self.search.reset(key, params)

    def step(self, key: int, state: PlumeHostState, action: Any, params: Any) -> tuple[Any, ...]:
        with jax.default_device(host_device()):
            state = state.search.resume(state)
            return state.search.step(state, action, params)

    def info(self, state: PlumeHostState, params: Any) -> Info:
        return self.search.info(state)

    def observation_space(self, params: Any) -> Space:
        return self.base.observation_space(params)

    def action_space(self, params: Any) -> Space:
        return self.base.action_space(params)

    def render(self, state: PlumeHostState, params: Any) -> NDArray[Any]:
        with jax.default_device(host_device()):
            state = state.search.resume(state)
            _, _, field, field_state = state.search.host_scene_parts(state, params)
            return np.array(self.base.render(self._pure(state, field_state), replace(params, field=field)))

    def describe(self, state: PlumeHostState, obs: Any, params: Any) -> str:
        return self.base.describe(self._pure(state, state.field), obs, params)

    def agent_position_in_image(self, state: PlumeHostState, params: Any) -> tuple[float, float] | None:
        return self.base.agent_position_in_image(self._pure(state, state.field), params)

    @property
    def language(self) -> Language:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Language(self.base.motion.words)

    def _pure(self, state: PlumeHostState, field: Any) -> PlumeNavState:
        trail = jnp.asarray(np.reshape(state.trail, (-1, 2)), float)
        return PlumeNavState(jnp.int32(state.agent.step_count), state.pose, field, state.memory, trail)


@jax.jit
def _start_pose(words: Any, start: Any, motion: Any, arena: Any, source: Any, goal_radius: Any) -> AgentPose:
    agent = start.place(step_key(words, 0), arena, pair(source), goal_radius, motion.on_grid)
    return replace(agent, heading=motion.initial_heading(agent.heading))


@jax.jit
def _to_pose(before: AgentPose, position: Any, degrees: Any) -> AgentPose:
    xy = pair(position)
    return AgentPose.at(xy, jnp.deg2rad(jnp.asarray(degrees, xy.dtype)), xy - before.xy, before.absorbed)


def _scene(parts: SceneParts) -> Scene:
    pose, arena, field, state = parts
    if isinstance(field, PlaceholderField) and field.inner is None:
        pose = AgentAtPoint.of(pose)
        state = (pose.xy, state)
    return Scene(pose, arena, field, state)


def _key(words: Any, step: Any, part: int) -> Any:
    return random.fold_in(step_key(jnp.asarray(words), step), part)


@jax.jit
def _move(motion: Any, words: Any, step: Any, action: Any, parts: SceneParts) -> AgentPose:
    return motion.move(_key(words, step, MOTION), action, _scene(parts))


@jax.jit
def _compute_reward(reward: Any, action: Any, reached: Any, before: SceneParts, after: SceneParts) -> Any:
    return reward(_scene(before), action, _scene(after), jnp.asarray(reached)).astype(jnp.float32)


@jax.jit
def _sense(sensor: Any, words: Any, step: Any, memory: Any, parts: SceneParts) -> Any:
    return sensor.sense(_key(words, step, SENSOR), memory, _scene(parts))
