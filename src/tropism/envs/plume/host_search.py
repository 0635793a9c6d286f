"""The steps of a search whose parts are a user's Python objects, or a mixture of theirs and the library's."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tropism.core.compiled.program import host_device
from tropism.core.environment import Info
from tropism.core.episode import Timestep, host_key, seed_words
from tropism.core.native.engine import make_compiled_engine
from tropism.core.session.compiled import XlaEngine
from tropism.core.spaces.space import as_array
from tropism.envs.plume.host_parts import (
    SceneParts,
    compute_reward,
    move,
    sense,
    small_box_test,
    start_pose,
    to_pose,
)
from tropism.envs.plume.host_state import HostEpisode, PlumeHostState
from tropism.envs.plume.nav import PlumeNav
from tropism.envs.plume.parts import PlumeParts
from tropism.envs.plume.steps import search_info
from tropism.errors import StateError, ValidationError
from tropism.plume.rewards import SparseGoal
from tropism.plume.scene import AgentPose
from tropism.plume.sensors import Concentration
from tropism.plume.user_parts import (
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
)

RNG = -2  # in place of a step number: selects the key of the components' generator
NUMBERS = (int, float)
as_coordinates = partial(tuple.__new__, Coordinates)  # faster than `Coordinates._make`


class HostSearch:
    """The steps of a `PlumeHost`. A plain class, because Equinox wraps every bound method in a module."""

    def __init__(self, base: PlumeNav, parts: PlumeParts):
        self.base = base
        self.parts = parts
        self.size = GridSize(*base.grid_size)
        self.shape, self.low, self.high, self.trail = base.shape, base.low, base.high, base.trail
        self.on_grid, self._bounds = base.motion.on_grid, (*base.low, *base.high)
        self.engine: XlaEngine | None = None  # moves the agent and the plume if both are the library's
        self._validates = hasattr(parts.motion, "validate_action")
        library = self._move_by_engine if parts.uses_engine else self._move_by_library
        self._move = library if parts.motion is None else self._move_by_user
        self._is_plain_obs = small_box_test(base.sensor.space(base.shape))

    def __reduce__(self) -> tuple[Any, ...]:
        return HostSearch, (self.base, self.parts)  # a copy replays its episode

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostSearch) and (self.base, self.parts) == (other.base, other.parts)

    def __hash__(self) -> int:
        return hash((self.base, self.parts))

    def reset(self, seed: int, params: Any) -> tuple[Any, PlumeHostState]:
        words, rng = seed_words(seed), np.random.default_rng(host_key(seed, RNG))
        source = Coordinates(*(float(side) for side in params.field.source))
        self.parts.begin_episode(seed, rng, params)
        goal = self._coordinates(*source)
        episode = HostEpisode(self, seed, params, self.parts.initial, words, rng, source, goal)
        with jax.default_device(host_device()):
            state = self._start_engine(episode) if self.parts.uses_engine else self._place_agent(episode)
        state.trail = (state.position,) * self.trail
        obs = self._sense(state)
        self.parts.latest = state
        return obs, state

    def _place_agent(self, episode: HostEpisode) -> PlumeHostState:
        params = episode.params
        place = (params.start, params.motion, params.arena, episode.source, params.goal_radius)
        pose = start_pose(episode.words, *place)
        state = self._at_pose(episode, pose)
        state.memory = params.sensor.start(self.shape)
        self._measure(state)
        return state

    def _start_engine(self, episode: HostEpisode) -> PlumeHostState:
        """Reset an engine of the same search with library parts in place of the user's sensor and reward."""
        user = {"sensor": (self.parts.sensor, Concentration()), "reward": (self.parts.reward, SparseGoal())}
        parts = {name: part for name, (own, part) in user.items() if own is not None}
        params = replace(episode.params, **parts)
        if self.engine is None:
            self.engine = make_compiled_engine(self.base.with_parts(**parts), params, "auto")
        return self._follow_engine(episode, self.engine.reset(episode.seed, params, {}))

    def _follow_engine(self, episode: HostEpisode, timestep: Timestep, previous: Any = None) -> PlumeHostState:
        info = timestep.info
        position = as_coordinates(info["agent_xy"])
        state = PlumeHostState(episode, position, info["heading"], previous or position)
        state.timestep, state.goal_reached = timestep, info["goal_reached"]
        state.absorbed = timestep.terminated and not state.goal_reached
        state.concentration, state.distance = info["concentration_at_agent"], info["distance_to_goal"]
        self.parts.plume.follow(self.engine, position, state.concentration)
        return state

    def step(self, state: PlumeHostState, action: Any) -> tuple[Any, ...]:
        """The operations of `PureSteps.take`, in the same order."""
        parts, episode = self.parts, state.episode
        if state is not parts.latest:
            state = self.resume(state)
            return state.episode.search.step(state, action)
        if self._validates and not parts.motion.validate_action(action):
            raise ValidationError("action", action, f"one that {type(parts.motion).__name__}.validate_action accepts")
        parts.latest = None  # until the step has succeeded
        after = self._move(state, action)
        after.step_count, after.total_reward = state.step_count, state.total_reward
        if self.trail:
            after.trail = (*state.trail[1:], after.position)
        if parts.sensor is None:
            after.memory = state.memory
        parts.now = step = state.step_count + 1
        for part in parts.advancing:
            part.advance_to_step(step)
        if self.engine is None:
            self._measure(after)
        reward = self._reward(state, action, after)
        after.step_count = step
        after.total_reward += reward
        obs = self._sense(after)
        terminated, truncated = after.goal_reached or after.absorbed, step >= episode.max_steps
        info = self.info(after)
        info["terminated"], info["truncated"] = terminated, truncated
        episode.actions.append(action)
        parts.latest = after
        return obs, after, reward, terminated or truncated, info

    def info(self, state: PlumeHostState) -> Info:
        position, heading, goal = tuple(state.position), state.orientation % 360.0, state.episode.goal_location
        return search_info(state.goal_reached, position, heading, goal, state.distance, state.concentration)

    def resume(self, state: PlumeHostState) -> PlumeHostState:
        """The state with parts at its step; if they have advanced, copies of them that replay its episode."""
        if state is self.parts.latest:
            return state
        episode, steps = state.episode, state.step_count
        if episode.initial_parts is None:
            advice = "give each session its own environment"
            message = f"cannot step: the components of this environment run another episode; {advice}"
            raise StateError("episode", steps, advice, message)
        search = HostSearch(self.base, self.parts.at_start(episode.initial_parts))
        _, replayed = search.reset(episode.seed, episode.params)
        for action in episode.actions[:steps]:
            replayed = search.step(replayed, action)[1]
        return replayed

    def _move_by_engine(self, state: PlumeHostState, action: Any) -> PlumeHostState:
        engine: Any = self.engine
        return self._follow_engine(state.episode, engine.step(action), state.position)

    def _move_by_library(self, state: PlumeHostState, action: Any) -> PlumeHostState:
        episode = state.episode
        known = (episode.words, state.step_count + 1, action)
        pose = self._run(move, episode.params.motion, known, (state,), episode.params)
        after = self._at_pose(episode, pose, state.position)
        after.absorbed = bool(pose.absorbed)
        return after

    def _move_by_user(self, state: PlumeHostState, action: Any) -> PlumeHostState:
        here, heading, step = state.position, state.orientation, state.step_count
        agent = AgentState(here, heading, step, state.total_reward, state.goal_reached)
        result = self.parts.motion.process_action(action, agent, self.size)
        try:
            position: Any = result.position
            x, y = position if type(position) is tuple else (position.x, position.y)
        except (AttributeError, ValueError):
            x = y = math.nan
        left, bottom, right, top = self._bounds
        plain = type(x) in NUMBERS and type(y) in NUMBERS
        if not (plain and left <= x <= right and bottom <= y <= top):
            x, y = self._read_position(result, step + 1)
        orientation = getattr(result, "orientation", heading)
        if type(orientation) is not float or not math.isfinite(orientation):
            label = return_label(self.parts.motion, "process_action", step + 1)
            orientation = require_finite(f"the orientation in {label}", orientation)
        return PlumeHostState(state.episode, as_coordinates((x, y)), orientation, here)

    def _read_position(self, result: Any, step: int) -> Any:
        """The position of the agent that a user's motion returned, or an error."""
        position: Any = getattr(result, "position", None)
        point = as_array((position.x, position.y) if hasattr(position, "x") and hasattr(position, "y") else position)
        if point is None or point.shape != (2,) or not np.all((point >= self.low) & (point <= self.high)):
            expected = f"an agent with a position between {self.low} and {self.high}"
            name = return_label(self.parts.motion, "process_action", step)
            raise ValidationError(name, result if position is None else position, expected)
        return point.tolist()

    def _measure(self, state: PlumeHostState) -> None:
        """Set the concentration at the agent, the distance and whether the goal is reached."""
        parts, episode, (x, y) = self.parts, state.episode, state.position
        plume, step = parts.plume, parts.now
        value = plume.sample(x, y) if parts.plume_advances else plume.sample(x, y, t=step)
        if type(value) is not float or not math.isfinite(value):
            value = require_finite(return_label(plume, "sample", step), value)
        state.concentration = value
        state.distance = distance = math.dist(state.position, episode.source)
        state.goal_reached = distance <= episode.goal_radius
        if not parts.owns_plume:
            state.field = plume.state

    def _reward(self, before: PlumeHostState, action: Any, after: PlumeHostState) -> float:
        reward = self.parts.reward
        if reward is not None:
            value = reward.compute_reward(before.agent(), action, after.agent(), self.parts.plume)
            if type(value) is float and math.isfinite(value):
                return value
            return require_finite(return_label(reward, "compute_reward", self.parts.now), value)
        if after.timestep is not None:
            return after.timestep.reward
        params, known = after.episode.params, (action, after.goal_reached)
        return float(self._run(compute_reward, params.reward, known, (before, after), params))

    def _sense(self, state: PlumeHostState) -> Any:
        sensor, episode = self.parts.sensor, state.episode
        if sensor is not None:
            obs = sensor.get_observation(self._surroundings(state, episode))
            if self._is_plain_obs(obs):
                return obs.copy()
            label = return_label(sensor, "get_observation", self.parts.now)
            return episode.params.sensor.space(self.shape).coerce(obs, label)
        if state.timestep is not None:
            return state.timestep.obs
        known = (episode.words, self.parts.now, state.memory)
        obs, state.memory = self._run(sense, episode.params.sensor, known, (state,), episode.params)
        return jax.tree.map(np.array, obs)

    def _surroundings(self, state: PlumeHostState, episode: HostEpisode) -> Mapping[str, Any]:
        """The input of a user's sensor. An array that the plume holds is in it; others are computed when read."""
        parts, plume = self.parts, self.parts.plume
        values = {
            "agent_state": state.agent(),
            "concentration_field": plume,
            "wind_field": parts.wind,
            "goal_location": episode.goal,
            "grid_size": self.size,
            "step_count": state.step_count,
            "max_steps": episode.max_steps,
            "rng": episode.rng,
        }
        if not parts.holds_array:
            return Surroundings(values, lambda: plume_raster(plume, self.shape, parts.now))
        if parts.array is not plume.field_array:
            parts.array = plume_raster(plume, self.shape, parts.now)
        values["plume_field"] = parts.array
        return values

    def _run(self, function: Any, part: Any, known: SceneParts, states: tuple[PlumeHostState, ...], params: Any) -> Any:
        """Run a part compiled, unless it uses a plume or a wind that is a Python object."""
        host_only, name = self.parts.host_only, f"{function.__name__} of {type(part).__name__}"
        with jax.default_device(host_device()):
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
        return self.pose(state), params.arena, field, state.concentration if parts.owns_plume else state.field

    def host_scene_parts(self, state: PlumeHostState, params: Any) -> SceneParts:
        field, field_state = params.field, state.field if self.engine is None else self.engine.state().field
        if self.parts.owns_plume or self.parts.owns_wind:
            field = HostField(field.source, None if self.parts.owns_plume else field, self.parts, self.shape)
            field_state = HostFieldState(state.step_count, state.position, state.concentration, state.field)
        return self.pose(state), params.arena, field, field_state

    def pose(self, state: PlumeHostState) -> AgentPose:
        """The agent, for library parts."""
        if (pose := state.pose) is None and self.engine is not None:
            pose = jax.tree.map(jnp.asarray, self.engine.state().agent)
        elif pose is None:
            (x, y), (x_before, y_before) = state.position, state.previous
            pose = to_pose((x, y), state.orientation, (x - x_before, y - y_before))
        state.pose = pose
        return pose

    def _at_pose(self, episode: HostEpisode, pose: AgentPose, previous: Any = None) -> PlumeHostState:
        heading = float(np.degrees(np.asarray(pose.heading))) % 360.0
        position = self._coordinates(float(pose.x), float(pose.y))
        state = PlumeHostState(episode, position, heading, previous or position)
        state.pose = pose
        return state

    def _coordinates(self, x: float, y: float) -> Coordinates:
        return Coordinates(round(x), round(y)) if self.on_grid else Coordinates(x, y)
