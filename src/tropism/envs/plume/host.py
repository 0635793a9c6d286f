"""PlumeNav with a user's Python objects as parts: the same search, stepped on the host."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tropism.core.adapters.language import Language
from tropism.core.compiled.program import host_device
from tropism.core.environment import Environment, Info
from tropism.core.episode import Timestep, host_key, seed_words
from tropism.core.host import Host
from tropism.core.native.engine import make_compiled_engine
from tropism.core.session.compiled import XlaEngine
from tropism.core.spaces import Space
from tropism.core.spaces.space import as_array
from tropism.envs.plume.host_parts import (
    SceneParts,
    SmallBox,
    compute_reward,
    move,
    sense,
    start_pose,
    to_pose,
)
from tropism.envs.plume.host_state import HostEpisode, PlumeHostState
from tropism.envs.plume.nav import PlumeNav, PlumeNavParams, PlumeNavState
from tropism.envs.plume.parts import PlumeParts, PlumeView
from tropism.envs.plume.steps import PRIVATE_INFO, search_info, take_step
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
    sample_plume,
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
        self.on_grid = base.motion.on_grid
        self.engine: XlaEngine | None = None  # moves the agent and the plume if both are the library's
        self._validates = hasattr(parts.motion, "validate_action")
        self._small_obs = SmallBox.of(base.sensor.space(base.shape))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "engine": None}  # a copy replays its episode

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
        self._measure(state)
        obs = self._sense(state)
        self.parts.latest = state
        return obs, state

    def _place_agent(self, episode: HostEpisode) -> PlumeHostState:
        params = episode.params
        place = (params.start, params.motion, params.arena, episode.source, params.goal_radius)
        pose = start_pose(episode.words, *place)
        state = self._at_pose(episode, pose)
        state.memory = params.sensor.start(self.shape)
        return state

    def _start_engine(self, episode: HostEpisode) -> PlumeHostState:
        """Reset an engine of the same search with library parts in place of the user's sensor and reward."""
        user = {"sensor": (self.parts.sensor, Concentration()), "reward": (self.parts.reward, SparseGoal())}
        parts = {name: part for name, (own, part) in user.items() if own is not None}
        params = replace(episode.params, **parts)
        if self.engine is None:
            self.engine = make_compiled_engine(self.base.with_parts(**parts), params, "auto")
        return self._follow_engine(episode, self.engine.reset(episode.seed, params, {}))

    def _follow_engine(self, episode: HostEpisode, timestep: Timestep, before: Any = None) -> PlumeHostState:
        info = timestep.info
        state = PlumeHostState(episode, as_coordinates(info["agent_xy"]), info["heading"], before)
        state.timestep, state.absorbed = timestep, timestep.terminated and not info["goal_reached"]
        self.parts.plume.follow(self.engine, state.position, info["concentration_at_agent"])
        return state

    def step(self, state: PlumeHostState, action: Any) -> tuple[Any, ...]:
        parts = self.parts
        if state is not parts.latest:
            state = self.resume(state)
            return state.episode.search.step(state, action)
        if self._validates and not parts.motion.validate_action(action):
            raise ValidationError("action", action, f"one that {type(parts.motion).__name__}.validate_action accepts")
        parts.latest = None
        result = take_step(self, state, action)
        parts.latest = result[1]
        state.episode.actions.append(action)
        return result

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

    def move(self, state: PlumeHostState, action: Any) -> PlumeHostState:
        """The agent after its move, with the counters before the step, in the advanced plume and wind."""
        if self.parts.motion is not None:
            after = self._move_by_user(state, action)
        elif self.engine is not None:
            after = self._follow_engine(state.episode, self.engine.step(action), state)
        else:
            after = self._move_by_library(state, action)
        if self.parts.sensor is None:
            after.memory = state.memory
        if self.trail:
            after.trail = (*state.trail[1:], after.position)
        self.parts.advance(state.step_count + 1)
        self._measure(after)
        return after

    def _move_by_library(self, state: PlumeHostState, action: Any) -> PlumeHostState:
        episode = state.episode
        known = (episode.words, state.step_count + 1, action)
        pose = self._run(move, episode.params.motion, known, (state,), episode.params)
        after = self._at_pose(episode, pose, state)
        after.absorbed = bool(pose.absorbed)
        return after

    def _move_by_user(self, state: PlumeHostState, action: Any) -> PlumeHostState:
        counters = state.step_count, state.total_reward, state.goal_reached
        agent = AgentState(state.position, state.orientation, *counters)
        result = self.parts.motion.process_action(action, agent, self.size)
        try:
            point = result.position.x, result.position.y
        except AttributeError:
            point = getattr(result, "position", None)
        if not self._is_inside(point):
            point = self._read_position(result, state.step_count + 1)
        orientation = getattr(result, "orientation", state.orientation)
        if type(orientation) is not float or not math.isfinite(orientation):
            label = return_label(self.parts.motion, "process_action", state.step_count + 1)
            orientation = require_finite(f"the orientation in {label}", orientation)
        return PlumeHostState(state.episode, as_coordinates(point), orientation, state)

    def _read_position(self, result: Any, step: int) -> Any:
        """The position of the agent that a user's motion returned, or an error."""
        position: Any = getattr(result, "position", None)
        point = as_array((position.x, position.y) if hasattr(position, "x") and hasattr(position, "y") else position)
        if point is None or point.shape != (2,) or not np.all((point >= self.low) & (point <= self.high)):
            expected = f"an agent with a position between {self.low} and {self.high}"
            name = return_label(self.parts.motion, "process_action", step)
            raise ValidationError(name, result if position is None else position, expected)
        return point.tolist()

    def _is_inside(self, point: Any) -> bool:
        """Whether a point is a pair of plain numbers inside the arena."""
        if type(point) is not tuple or len(point) != 2:
            return False
        x, y = point
        plain = type(x) in NUMBERS and type(y) in NUMBERS
        return plain and self.low[0] <= x <= self.high[0] and self.low[1] <= y <= self.high[1]

    def _measure(self, state: PlumeHostState) -> None:
        """Set the concentration at the agent, the distance and whether the goal is reached."""
        plume, episode = self.parts.plume, state.episode
        if state.timestep is not None:
            info = state.timestep.info
            state.concentration, state.distance = info["concentration_at_agent"], info["distance_to_goal"]
            state.goal_reached = info["goal_reached"]
            return
        x, y = state.position
        state.concentration = sample_plume(plume, x, y, self.parts.now)
        state.distance = math.dist(state.position, episode.source)
        state.goal_reached = state.distance <= episode.goal_radius
        if not self.parts.owns_plume:
            state.field = plume.state

    def reward(self, before: PlumeHostState, action: Any, after: PlumeHostState) -> float:
        reward = self.parts.reward
        if reward is not None:
            value = reward.compute_reward(before.agent, action, after.agent, self.parts.plume)
            if type(value) is float and math.isfinite(value):
                return value
            return require_finite(return_label(reward, "compute_reward", self.parts.now), value)
        if after.timestep is not None:
            return after.timestep.reward
        params, known = after.episode.params, (action, after.goal_reached)
        return float(self._run(compute_reward, params.reward, known, (before, after), params))

    def observe(self, state: PlumeHostState, reward: float) -> tuple[Any, PlumeHostState]:
        state.step_count += 1
        state.total_reward += reward
        return self._sense(state), state

    def _sense(self, state: PlumeHostState) -> Any:
        sensor, episode = self.parts.sensor, state.episode
        if sensor is not None:
            obs = sensor.get_observation(self._surroundings(state))
            if self._small_obs is not None and self._small_obs.contains(obs):
                return obs.copy()
            label = return_label(sensor, "get_observation", self.parts.now)
            return episode.params.sensor.space(self.shape).coerce(obs, label)
        if state.timestep is not None:
            return state.timestep.obs
        known = (episode.words, self.parts.now, state.memory)
        obs, state.memory = self._run(sense, episode.params.sensor, known, (state,), episode.params)
        return jax.tree.map(np.array, obs)

    def _surroundings(self, state: PlumeHostState) -> dict[str, Any]:
        episode, parts = state.episode, self.parts
        values = {
            "agent_state": state.agent,
            "concentration_field": parts.plume,
            "wind_field": parts.wind,
            "goal_location": episode.goal,
            "grid_size": self.size,
            "step_count": state.step_count,
            "max_steps": episode.max_steps,
            "rng": episode.rng,
        }
        if not parts.has_array:
            return Surroundings(values)
        values["plume_field"] = parts.raster(self.shape)
        return values

    def outcome(self, state: PlumeHostState) -> tuple[bool, Info]:
        terminated, truncated = state.goal_reached or state.absorbed, state.step_count >= state.episode.max_steps
        info = self.info(state)
        info["terminated"], info["truncated"] = terminated, truncated
        return terminated or truncated, info

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

    def _at_pose(self, episode: HostEpisode, pose: AgentPose, before: Any = None) -> PlumeHostState:
        x, y = np.asarray(pose.xy).tolist()
        heading = float(np.degrees(np.asarray(pose.heading))) % 360.0
        state = PlumeHostState(episode, self._coordinates(x, y), heading, before)
        state.pose = pose
        return state

    def _coordinates(self, x: float, y: float) -> Coordinates:
        return Coordinates(round(x), round(y)) if self.on_grid else Coordinates(x, y)


class PlumeHost(Environment):
    """`base` with the components of `parts` in place of some of its own.

    `base` has `UserSensor`, `UserMotion`, `UserReward` and `PlaceholderField` in place of user parts. The user's
    objects run the episode that started last; earlier ones, in other sessions, continue with copies of them.
    """

    host = Host(reseedable=False, complete_info=True)
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
        return self.search.reset(key, params)

    def step(self, key: int, state: PlumeHostState, action: Any, params: Any) -> tuple[Any, ...]:
        return state.episode.search.step(state, action)

    def info(self, state: PlumeHostState, params: Any) -> Info:
        return self.search.info(state)

    def observation_space(self, params: Any) -> Space:
        return self.base.observation_space(params)

    def action_space(self, params: Any) -> Space:
        return self.base.action_space(params)

    def render(self, state: PlumeHostState, params: Any) -> NDArray[Any]:
        with jax.default_device(host_device()):
            state = state.episode.search.resume(state)
            _, _, field, field_state = state.episode.search.host_scene_parts(state, params)
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
        return PlumeNavState(jnp.int32(state.step_count), self.search.pose(state), field, state.memory, trail)
